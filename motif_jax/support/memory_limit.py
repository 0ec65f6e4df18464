"""Where memory ends: one line says so, and what to make smaller.

Memory ends in one of three ways. What Python or JAX wants is refused: an exception. What a compiled library wants is refused: it
aborts the process (XLA's compiler and the C++ library know no other way), of which only another process can tell. And the
system kills the process without a word: a kill like any other, of which the system's log tells. The first is told
everywhere; the second below a limit of addresses (`ulimit -v`), where it is what happens: there the stage runs in a process of
its own, watched by the one that was started.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import importlib.abc
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from ml_collections import ConfigDict

# Of all stages, what memory is spent on: the first of these that a config has are named.
_SPENDERS = (
    "batch_size batch actors.envs_per_worker actors.workers rollout algorithm.microbatch_size max_len length lanes workers "
    "ensemble.members network.prompt_tokens chunk_steps"
).split()
_NAMED = 3
# And what divides it: over processes, over time, over devices.
_DIVIDERS = ("num_shards", "accumulate", "sharding.fsdp")
# How compiled code ends that gets no memory: by abort, or by going where a null pointer leads.
_ENDINGS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
# What the loader of libraries says.
_OF_LOADER = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
# OpenBLAS asks without end for what it does not get. It wants so much for each of its threads (measured on 1 and 2: 40 MiB), besides what
# is loaded with it: Python and numpy (measured: 97 MiB with one thread), and later scipy, which has one of its own (88 MiB).
_OF_THREAD, _OF_PYTHON, _OF_SCIPY = 40 << 20, 80 << 20, 56 << 20
_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
_MOST_THREADS = 64
# Whichever of them comes first loads it.
_WITH_OPENBLAS = ("scipy.linalg", "scipy.special")


def limit() -> int | None:
    """Bytes of addresses that a process may have (`ulimit -v`), None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def require_libraries() -> None:
    """Ends the process with one line where not even numpy could be loaded. To be called before that: this module loads nothing."""
    bound, least = limit(), _OF_PYTHON + _openblas()
    if bound is not None and bound < least:
        line = f"error: memory for addresses is limited to {bound / 2**20:,.0f} MiB (ulimit -v): must be at least {least / 2**20:,.0f} MiB"
        leave(line, 2)


def _openblas() -> int:
    """Bytes of addresses that OpenBLAS takes when it is loaded."""
    told = (os.environ.get(name, "") for name in _THREADS)
    threads = next(
        (int(text) for text in told if text.isdecimal() and int(text) > 0), len(os.sched_getaffinity(0))
    )
    return min(threads, _MOST_THREADS) * _OF_THREAD


class _RoomForScipy(importlib.abc.MetaPathFinder):
    """Finds nothing; where scipy's linear algebra is about to be loaded it refuses what OpenBLAS would ask for without end."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname not in _WITH_OPENBLAS:
            return
        sys.meta_path.remove(self)
        need = _OF_SCIPY + _openblas()
        try:
            mmap.mmap(-1, need, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ).close()
        except OSError:
            raise MemoryError(f"{need / 2**20:,.0f} MiB of addresses for scipy's linear algebra") from None


def ran_out(error: BaseException) -> str | None:
    """What was refused, if an exception or one that led to it comes of memory that ended; None for any other."""
    for each in _chain(error):
        words = " ".join(str(each).split())
        if isinstance(each, MemoryError):
            return words or "an allocation failed"
        if isinstance(each, OSError) and each.errno == errno.ENOMEM:
            return words
        if isinstance(each, RuntimeError) and words.startswith("RESOURCE_EXHAUSTED"):
            return words
        # A thread's stack is refused below such a limit; elsewhere it is the number of threads that has one.
        if isinstance(each, RuntimeError) and limit() is not None and words == "can't start new thread":
            return words
        if isinstance(each, ImportError) and any(part in words for part in _OF_LOADER):
            return words
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()  # a thread's error that was raised again and again may be its own context
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def told(what: str, config: ConfigDict) -> str:
    """The line for memory that ended.

    Args:
      what: how it ended.
      config: of the stage, for what can be made smaller.
    """
    from motif_jax.support.config import dotted, has

    spent = {key: dotted(config, key) for key in _SPENDERS if has(config, key)}
    numbers = [
        f"config.{key}={value}" for key, value in spent.items() if isinstance(value, int) and value > 1
    ]
    ways = [f"make {' or '.join(numbers[:_NAMED])} smaller"] if numbers else []
    ways += [f"make config.{key}={dotted(config, key)} larger" for key in _DIVIDERS if has(config, key)][:1]
    bound = limit()
    more = f"more than {bound / 2**20:,.0f} MiB (ulimit -v)" if bound else "more"
    return (
        f"memory has ended ({what[:200]}): {', '.join([*ways, f'or give it {more}' if ways else f'give it {more}'])}; what was saved "
        "before is kept, and with more memory the same command goes on"
    )


def leave(line: str, code: int) -> NoReturn:
    """Ends the process on the spot with `line` on stderr: where there is no memory, threads that are asked to end do not always."""
    os.write(2, f"{line}\n".encode())
    os._exit(code)


def watch(end: Callable[[str], NoReturn]) -> None:
    """Below a limit of addresses goes on in a process of its own, and ends with it as it ends; without one does nothing.

    To be called before there are threads, from the main one. Returns in the new process. The one that was started passes signals on
    and waits; where the other is ended by its own code it calls `end` with what happened, where by another signal it ends by that.
    The new process is killed when this one ends before it.
    """
    if limit() is None:
        return
    waited = {*_PASSED_ON, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    parent, child = os.getpid(), os.fork()
    if child:
        _end_as(_wait(child, waited), end)
    faulthandler.disable()  # its pages of stacks say nothing that the line does not
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    sys.meta_path.insert(0, _RoomForScipy())


def _wait(child: int, waited: set[signal.Signals]) -> int:
    """The status that `child` ends with; signals that somebody sends to this process alone are passed on, a terminal's reach both."""
    while True:
        came = signal.sigwaitinfo(waited)
        if came.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif came.si_code <= 0:
            os.kill(child, came.si_signo)


def _end_as(status: int, end: Callable[[str], NoReturn]) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if -code in _ENDINGS:
        end(
            f"compiled code ended the process with {signal.Signals(-code).name}, as it does where it gets none"
        )
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code)
