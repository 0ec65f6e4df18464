"""Assigns a core to each worker's processes.

The processes of a worker play one after the other. Without a pinned core the scheduler would move each to any idle core with
cold caches. A claim ends with the process that holds it, so trainings side by side use different cores.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

_FEWEST = 2  # cores for inference, batcher, learner and XLA's threads


class Cores:
    """Claims cores, one for each worker, until `close`; `numbers` is empty if too few are unclaimed."""

    def __init__(self, count: int) -> None:
        self._claims: dict[int, socket.socket] = {}
        allowed = sorted(os.sched_getaffinity(0), reverse=True) if hasattr(os, "sched_getaffinity") else []
        for core in allowed[:-1]:  # leaves one for everything else
            if len(self._claims) < count and (claim := _claim(core)) is not None:
                self._claims[core] = claim
        if len(self._claims) < count:
            self.close()
        self.numbers = tuple(self._claims)

    def close(self) -> None:
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


class OwnCores:
    """Keeps this process's threads off cores that actors use, until `close`; `numbers` are those that are left to them.

    A thread that shares a core with a game waits for whole steps of it: on a GPU machine a call of inference took a third longer.
    Nothing is done where fewer than `_FEWEST` are left; `numbers` is empty then.
    """

    def __init__(self, of_actors: Collection[int]) -> None:
        self._before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        left = self._before - set(of_actors)
        enough = bool(of_actors) and len(left) >= _FEWEST
        self.numbers: tuple[int, ...] = tuple(sorted(left)) if enough else ()
        if self.numbers:
            _move_threads(left)

    def close(self) -> None:
        if self.numbers:
            _move_threads(self._before)
        self.numbers = ()


def _move_threads(numbers: Collection[int]) -> None:
    """Moves all threads of this process to cores; later threads inherit theirs."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), numbers)


def _claim(core: int) -> socket.socket | None:
    """Claims a core by an abstract socket; None if another process holds it."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        claim.bind(f"\0motif_jax_core_{os.getuid()}_{core}")
        return claim
    claim.close()
    return None
