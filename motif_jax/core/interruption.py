"""Stops on request: finish the step, save, exit with a code that means "start me again".

`Interruption` is for stages that can save. Outside of it, Ctrl-C ends the process at once with one
line (`leave_at_interrupt`). What a command prints while it saves may have lost its reader
(`outlive_readers`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO

# EX_TEMPFAIL of sysexits.h: the work is not finished and the same command continues it.
EXIT_CODE = 75
# A shell's exit code for a program that SIGINT ended.
INTERRUPTED_CODE = 128 + signal.SIGINT
INTERRUPTED = "error: interrupted before the end; start it again with the same command"
# Errors of a pipe without a reader, and of a terminal that was closed.
_NO_READER = (errno.EPIPE, errno.EIO)


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


def write_line(line: str) -> None:
    """Writes a line to standard error, past Python's streams: also in the handler of a signal,
    which may interrupt a print. Nothing is raised.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))


class _LastingFile(io.FileIO):
    """An open descriptor; what nobody can read any more is dropped."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NO_READER:
                raise
            # As if all had been written: the buffer above would try the rest again.
            return memoryview(data).nbytes


def outlive_readers() -> None:
    """Makes prints of this process go on, to nowhere, when the reader of its output has ended.

    `command 2>&1 | tee log` and Ctrl-C: tee ends at once, and whatever the command prints while it
    saves would raise BrokenPipeError. For commands, which leave their results in files. Streams
    that somebody replaced stay, and so does None, that of a closed descriptor.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout = _lasting(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper) and sys.stderr is sys.__stderr__:
        sys.stderr = _lasting(sys.stderr)


def _lasting(stream: io.TextIOWrapper) -> TextIO:
    """Another stream to where `stream` goes; a file has no reader, and its errors stay errors."""
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.flush()
    # The descriptor belongs to the old stream, which stays open.
    file = _LastingFile(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
