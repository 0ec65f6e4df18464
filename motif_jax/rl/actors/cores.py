"""Gives a core to each worker's processes (`ActorCores`), and keeps this process's threads off
those cores (`ThreadCores`).

The processes of a worker play one after the other. Without a pinned core the scheduler would move
each to any idle core with cold caches. A claim ends with the process that holds it, so trainings
side by side use different cores.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

# For inference, batcher, learner and XLA's threads: with fewer their threads are better left on all
# cores.
_MIN_OTHER_CORES = 2


class ActorCores:
    """Claims `count` cores for actor processes, one for each worker, until `close`; `ids` is empty
    if too few are unclaimed.
    """

    def __init__(self, count: int) -> None:
        self._claims: dict[int, socket.socket] = {}
        usable = sorted(_usable_cores(), reverse=True)
        for core in usable[:-1]:  # the main process keeps at least one, however few there are
            if len(self._claims) == count:
                break
            claim = _claim(core)
            if claim is not None:
                self._claims[core] = claim
        if len(self._claims) < count:
            self.close()
        self.ids = tuple(self._claims)

    def close(self) -> None:
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


class ThreadCores:
    """Moves this process's threads to the cores that no actor uses, until `close`; `ids` are these
    cores.

    A thread that shares a core with a game waits until the game has finished its step: on a GPU
    machine a call of inference took a third longer. Where fewer than `_MIN_OTHER_CORES` would be
    left, nothing is done and `ids` is empty.
    """

    def __init__(self, actor_cores: Collection[int]) -> None:
        self._before = _usable_cores()
        others = self._before - set(actor_cores)
        self.ids: tuple[int, ...] = ()
        if actor_cores and len(others) >= _MIN_OTHER_CORES:
            self.ids = tuple(sorted(others))
            _move_threads(others)

    def close(self) -> None:
        if self.ids:
            _move_threads(self._before)
        self.ids = ()


def _usable_cores() -> set[int]:
    """The cores that this process may use; empty where the system cannot say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _move_threads(cores: Collection[int]) -> None:
    """Moves all threads of this process to `cores`; threads that start later inherit them."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def _claim(core: int) -> socket.socket | None:
    """Claims a core by an abstract socket; None if another process holds it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        claim.bind(f"\0motif_jax_core_{os.getuid()}_{core}")
        return claim
    claim.close()
    return None
