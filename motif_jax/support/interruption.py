"""Ending early on request: finish the step, save, leave with an exit code that says "start me again"."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType

# EX_TEMPFAIL of sysexits.h: the work is not finished and the same command continues it.
EXIT_CODE = 75


class Interruption:
    """While active, SIGTERM, SIGUSR1 and the first SIGINT only set `requested`.

    Slurm sends SIGUSR1 or SIGTERM ahead of the end of a job's time; a person presses Ctrl-C. A second
    SIGINT raises KeyboardInterrupt. Use it in the main thread, as Python's signal handlers demand.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self) -> None:
        self.requested = False
        self.signal_name = ""
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interruption:
        for number in self.SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self.signal_name = signal.Signals(number).name
        print(
            f"{self.signal_name}: saving and stopping; the same command continues",
            file=sys.stderr,
            flush=True,
        )
