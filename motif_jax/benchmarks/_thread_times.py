"""Divides a thread's time: on a core, in the queue for a core, and waiting for anything else (locks, pipes, the device)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple, Self


class ThreadTimes(NamedTuple):
    """Seconds of a thread: of the clock, on a core, and ready to run while other threads had the cores (NaN off Linux)."""

    clock: float
    processor: float
    queued: float

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
        pairs = zip(self, before, strict=True)
        return ThreadTimes(*(now - then for now, then in pairs))

    @property
    def waiting(self) -> float:
        return self.clock - self.processor - self.queued


def of_named_threads() -> dict[str, ThreadTimes]:
    """The times so far of this process's Python threads, by name."""
    numbers = {thread.name: thread.native_id for thread in threading.enumerate()}
    return {name: ThreadTimes.now(number) for name, number in numbers.items() if number is not None}


def shares(before: dict[str, ThreadTimes]) -> dict[str, dict[str, float]]:
    """Shares of the time since `before`, the output of `of_named_threads`, by thread."""
    now = of_named_threads()
    passed = {name: now[name].since(times) for name, times in before.items() if name in now}
    return {
        name: {
            "processor": times.processor / times.clock,
            "queued": times.queued / times.clock,
            "waiting": times.waiting / times.clock,
        }
        for name, times in passed.items()
    }
