"""Divides a thread's time: on a core, in the queue for a core, and waiting for anything else
(locks, pipes, the device).
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple, Self


class ThreadTimes(NamedTuple):
    """Seconds of a thread; NaN where the system does not tell."""

    clock: float  # that have passed
    processor: float  # on a core
    queued: float  # ready to run, while other threads had the cores

    @classmethod
    def now(cls, thread: int) -> Self:
        """The times so far of the thread of this process with this `native_id`."""
        clock = time.perf_counter()
        try:
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii")
        except OSError:  # not Linux, or the thread has ended
            return cls(clock, float("nan"), float("nan"))
        processor, queued, _ = text.split()
        return cls(clock, 1e-9 * int(processor), 1e-9 * int(queued))

    def since(self, before: ThreadTimes) -> ThreadTimes:
        return ThreadTimes(
            clock=self.clock - before.clock,
            processor=self.processor - before.processor,
            queued=self.queued - before.queued,
        )

    @property
    def waiting(self) -> float:
        """Seconds in which the thread waited for a lock, a pipe or the device."""
        return self.clock - self.processor - self.queued


def of_named_threads() -> dict[str, ThreadTimes]:
    """The times so far of this process's Python threads, by name."""
    numbers = {thread.name: thread.native_id for thread in threading.enumerate()}
    return {name: ThreadTimes.now(number) for name, number in numbers.items() if number is not None}


def shares(before: dict[str, ThreadTimes]) -> dict[str, dict[str, float]]:
    """Shares of the time since `before`, the output of `of_named_threads`, by thread."""
    now = of_named_threads()
    shares_of = {}
    for name, times_before in before.items():
        if name not in now:
            continue  # the thread has ended
        times = now[name].since(times_before)
        shares_of[name] = {
            "processor": times.processor / times.clock,
            "queued": times.queued / times.clock,
            "waiting": times.waiting / times.clock,
        }
    return shares_of
