"""Stops on request: finish the step, save, exit with a code that means "start me again".

`Interruption` is for stages that can save. Outside of it, Ctrl-C ends the process at once with one
line (`leave_at_interrupt`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from motif_jax.core.standard_streams import write_line

# EX_TEMPFAIL of sysexits.h: the work is not finished and the same command continues it.
EXIT_CODE = 75
# A shell's exit code for a program that SIGINT ended.
INTERRUPTED_CODE = 128 + signal.SIGINT
INTERRUPTED = "error: interrupted before the end; start it again with the same command"


class StoppedError(Exception):
    """A stop was requested before the work was done; the next start continues."""


def never() -> bool:
    """False: the `stopped` of callers that never stop."""
    return False


class Patience:
    """How long a requested stop waits for work that takes minutes and is lost where it is left."""

    # Some schedulers kill a job 30 seconds after they asked it to stop.
    SECONDS = 10.0

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._asked_at: float | None = None

    def check(self) -> None:
        """Raises StoppedError: a stop was requested `SECONDS` ago, as calls of this method have
        seen it.
        """
        now = time.monotonic()
        if self._asked_at is None and self._stopped():
            self._asked_at = now
        if self._asked_at is not None and now - self._asked_at > self.SECONDS:
            raise StoppedError


class Interruption:
    """While active, SIGTERM, SIGUSR1 (Slurm's, before a job's time ends) and the first SIGINT
    (Ctrl-C) only set `requested`.

    A second SIGINT raises KeyboardInterrupt. With `quiet`, for a caller that restores a screen
    first, nothing is printed, and SIGHUP (a closed terminal) counts, too. For the main thread, as
    Python's signal handlers demand.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self, quiet: bool = False) -> None:
        self.requested = False
        self._quiet = quiet
        self.signal_name = ""
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interruption:
        signals = (*self.SIGNALS, signal.SIGHUP) if self._quiet else self.SIGNALS
        for number in signals:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Only a person hurries, by a second Ctrl-C. Slurm sends SIGTERM after SIGUSR1 while the
        # save is still under way.
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self.signal_name = signal.Signals(number).name
        if not self._quiet:
            write_line(f"{self.signal_name}: saving and stopping; the same command continues")

    def leave(self) -> NoReturn:
        """Ends the program with the signal's exit code, for callers that save nothing and have
        closed what was open.
        """
        if self.signal_name == signal.SIGINT.name:
            # `motif_jax.launch` says in one line that it was interrupted.
            raise KeyboardInterrupt
        raise SystemExit(128 + signal.Signals[self.signal_name])


@contextlib.contextmanager
def deaf_processes(*signals: signal.Signals) -> Iterator[None]:
    """Blocks SIGINT, which reaches the whole group, and `signals` in processes started inside: the
    parent decides.
    """
    # A child inherits the mask of the thread that starts it, also across `exec`.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *signals})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_at_interrupt() -> None:
    """Lets SIGINT end the process at once with one line, unless an `Interruption` is active or
    SIGINT is ignored (a background job).

    Not by an exception: during the import of a compiled module it can crash, and libraries swallow
    it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> NoReturn:
    write_line(INTERRUPTED)
    os._exit(INTERRUPTED_CODE)
