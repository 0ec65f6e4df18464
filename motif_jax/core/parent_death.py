"""Ends child processes with their parent, even ones that are stuck in compiled code."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import select
import signal

# Its number is the seconds of grace: see `end_with_parent`.
GRACE_SIGNAL = signal.SIGIO
_PR_SET_PDEATHSIG = 1


class ParentGoneError(Exception):
    """Raised in a child process whose parent has closed the pipe between them, or died: nobody
    needs what it does.
    """


def lifeline_of_parent() -> int:
    """The pipe that this process shares with the one that started it: readable once that is gone.

    Raises RuntimeError: multiprocessing did not start this process.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a worker's function was called outside of a worker process")
    return parent.sentinel


def end_with_parent(lifeline: int) -> None:
    """Lets the kernel end this process 29 s after the last writer of the pipe `lifeline`, who
    writes nothing, has closed it.

    A healthy process removes its files in that time. Python takes no part, as a stuck engine may
    hold its lock: at the pipe's end the kernel sends `GRACE_SIGNAL`, whose handler is the C
    library's `alarm`. It takes the signal's number for the seconds until SIGALRM. (PR_SET_PDEATHSIG
    would leave no time, and also fires when the starting thread ends.)
    """
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    # SIGALRM ends the process. A mask is inherited, so both signals are let through here.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, GRACE_SIGNAL})
    library.signal(GRACE_SIGNAL, ctypes.cast(library.alarm, ctypes.c_void_p))
    # Who is told and by which signal, before O_ASYNC turns it on.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, GRACE_SIGNAL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if parent_is_gone(lifeline):
        signal.alarm(GRACE_SIGNAL)  # the pipe ended before the signal was set up


def parent_is_gone(lifeline: int) -> bool:
    """Whether every writer of the pipe has closed it."""
    watched = select.poll()
    watched.register(lifeline, 0)  # a hang-up is always reported
    return bool(watched.poll(0))


def sigterm_on_parent_death() -> None:
    """For `preexec_fn`: the kernel sends this process SIGTERM when the thread that started it
    ends.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
