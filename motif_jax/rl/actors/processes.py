"""Processes that this one starts: start, death, restart, kill and end, of actors and of workers.

The parent's side is `ChildProcess`. `Clock` tells which of them hangs, `Deaths` for whom no other
one is started. Each ends when its parent is gone, however that went (`end_with_parent`). What
becomes of an actor's group is decided in pool.py, of a worker's job in worker_process.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import select
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker, util
from typing import Any, NamedTuple

from motif_jax.core import tempdirs
from motif_jax.core.errors import UserError
from motif_jax.core.files import full_disk
from motif_jax.core.interruption import deaf_processes

MAX_DEATHS = 3  # so many processes may die of the same work, which is then given up
CLOSE_SECONDS = 5.0  # after which a process that was told to end is killed
# In a longer time between two looks at the clock this process was paused.
MAX_ROUND_SECONDS = 2.0
_START_ATTEMPTS = 5
PAUSE_SECONDS = 0.2  # between two attempts to start a process
_SERVER_LOST = 255  # the exit code that multiprocessing reports for a process whose server died
_MAX_TRACEBACK_CHARACTERS = 3000
# Its number is the seconds of grace: see `end_with_parent`.
_GRACE_SIGNAL = signal.SIGIO


# IN THE PARENT


class ChildProcess:
    """A process from its start to its end, and the pipe to it.

    A signal to the whole group of processes, as by Ctrl-C or Slurm, does not reach it: the parent
    decides. It is killed at the end of the program, at the latest.

    Args:
      target: what it calls, with its end of the pipe and then `arguments`.
      forks: whether it is forked from a server, which has imported `modules`; that is faster. Where
          no server can be started, it starts by itself as without.

    Attributes:
      process, pid: as multiprocessing has them.
      sentinel: what `multiprocessing.connection.wait` takes to see that it is dead.
      connection: this end of the pipe.
      is_killed: whether `kill` was called.
      error: the last error that it has reported, or why it was killed.

    Raises:
      OSError, EOFError: no process could be started.
    """

    def __init__(
        self,
        target: Callable[..., None],
        *arguments: Any,
        forks: bool = False,
        modules: Iterable[str] = (),
    ) -> None:
        self.is_killed = False
        self.error = ""
        with deaf_processes(signal.SIGUSR1):
            resource_tracker.ensure_running()  # its start unblocks SIGINT and SIGTERM
        for attempts_left in reversed(range(_START_ATTEMPTS)):
            context: Any = multiprocessing.get_context("forkserver" if forks else "spawn")
            if forks:
                context.set_forkserver_preload(list(modules))  # of a server that starts from now on
            # Outside of the `try`: without descriptors another way to start a process does not
            # help.
            self.connection, their_end = context.Pipe()
            try:
                # This process closes the other end, so that it reads as closed after a death.
                with their_end, deaf_processes(signal.SIGTERM, signal.SIGUSR1):
                    self.process = context.Process(target=target, args=(their_end, *arguments))
                    self.process.start()
                break
            except (OSError, EOFError) as error:
                self.connection.close()
                if attempts_left == 0:
                    raise
                if forks and not isinstance(error, EOFError | ConnectionError):
                    # No server can be started: the path of its socket may be too long.
                    forks = False
                else:
                    # Where the server has died, the next attempt starts another one.
                    time.sleep(PAUSE_SECONDS)
        self.pid: int = self.process.pid
        self.sentinel: int = self.process.sentinel
        # multiprocessing waits for all processes at its end, after its functions of this priority.
        self._at_exit = util.Finalize(None, self.process.kill, exitpriority=0)

    def kill(self, reason: str = "") -> None:
        """Ends the process at once."""
        self.error = reason
        self.is_killed = True
        self.process.kill()

    def cause_of_death(self) -> str:
        """Why a joined process has ended: one line, then `error`."""
        code = self.process.exitcode
        if code == _SERVER_LOST:
            with contextlib.suppress(ProcessLookupError):  # it still runs, unwatched
                os.kill(self.pid, signal.SIGKILL)
            reason = "the process that it was forked from died"
        elif code is not None and code < 0:
            reason = f"signal {-code}"
        else:
            reason = f"exit code {code}"
        return f"{reason}\n{self.error}" if self.error else reason

    def join(self, deadline: float) -> bool:
        """Waits for the end of a process that is dead or was told to end, and kills it at the
        deadline, by `time.monotonic`; returns whether it ended by itself.
        """
        self.process.join(max(0.0, deadline - time.monotonic()))
        in_time = not self.process.is_alive()
        if not in_time:
            self.process.kill()
            self.process.join()
        self.connection.close()
        self._at_exit.cancel()
        return in_time


def join_all(processes: Sequence[ChildProcess]) -> None:
    """Joins processes within `CLOSE_SECONDS` together, and removes the temporary folders of those
    that had to be killed.
    """
    deadline = time.monotonic() + CLOSE_SECONDS
    in_time = [process.join(deadline) for process in processes]
    if not all(in_time):
        tempdirs.remove_abandoned()


class Clock:
    """Seconds of this process without the time of a pause (Ctrl-Z, a debugger, a suspended job), in
    which the processes that it waits for were paused, too.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._read_at = time.monotonic()

    def advance(self) -> None:
        """To be called in every part of a wait."""
        now = time.monotonic()
        self.seconds += min(now - self._read_at, MAX_ROUND_SECONDS)
        self._read_at = now


class Deaths:
    """Counts deaths of processes by what they worked on, such as a job, or a group of games.

    Args:
      report: called after each death with the number of all deaths so far.
      limit: so many deaths of one work are too many.
    """

    def __init__(
        self, report: Callable[[int], None] | None = None, limit: int = MAX_DEATHS
    ) -> None:
        self._report = report
        self._limit = limit
        self._counts: Counter[int] = Counter()
        self._total = 0

    def note(self, key: int) -> bool:
        """Counts a death; returns whether the work `key` has had too many."""
        self._counts[key] += 1
        self._total += 1
        if self._report is not None:
            self._report(self._total)
        return self._counts[key] >= self._limit

    def forget(self, key: int) -> None:
        """The work `key` has made progress: its deaths so far were not its fault."""
        del self._counts[key]


# IN THE PROCESS


class ParentGoneError(Exception):
    """Raised in a process whose parent has closed the pipe between them, or died: nobody needs what
    it does.
    """


class Failure(NamedTuple):
    """What a process sends to its parent of an error that ends it.

    Attributes:
      error: the error itself where another process would meet the same: what the user can put
          right, or a full disk. None for others.
      trace: its traceback.
    """

    error: UserError | OSError | None
    trace: str


def failure_of(error: Exception) -> Failure:
    """Describes an error for the parent; that of a full disk may lie behind another one."""
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACEBACK_CHARACTERS:]
    if isinstance(error, UserError):
        return Failure(error, trace)
    full = full_disk(error)
    if full is None:
        return Failure(None, trace)
    file = full.filename or tempfile.gettempdir()
    return Failure(OSError(full.errno, full.strerror, str(file)), trace)


@contextlib.contextmanager
def parent_reads() -> Iterator[None]:
    """Raises ParentGoneError where nobody reads the pipe that the block writes to: a
    ConnectionError may also come from what the process works with.
    """
    try:
        yield
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ParentGoneError from error


def end_with_parent() -> int:
    """Lets the kernel end this process 29 s after its parent, even where it is stuck in compiled
    code; returns the `lifeline` to the parent, which is readable once that is gone.

    A healthy process removes its files in that time. Python takes no part, as a stuck engine may
    hold its lock: the lifeline is a pipe into which the parent writes nothing, and at whose end the
    kernel sends `_GRACE_SIGNAL`. Its handler is the C library's `alarm`, which takes the signal's
    number for the seconds until SIGALRM. (PR_SET_PDEATHSIG would leave no time, and also fires when
    the starting thread ends.)
    """
    parent: Any = multiprocessing.parent_process()
    lifeline: int = parent.sentinel
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    # SIGALRM ends the process. A mask is inherited, so both signals are let through here.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, _GRACE_SIGNAL})
    library.signal(_GRACE_SIGNAL, ctypes.cast(library.alarm, ctypes.c_void_p))
    # Who is told and by which signal, before O_ASYNC turns it on.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, _GRACE_SIGNAL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if parent_is_gone(lifeline):
        signal.alarm(_GRACE_SIGNAL)  # the pipe ended before the signal was set up
    return lifeline


def parent_is_gone(lifeline: int) -> bool:
    """Whether the parent at the other end of `lifeline` is gone."""
    watched = select.poll()
    watched.register(lifeline, 0)  # a hang-up is always reported
    return bool(watched.poll(0))
