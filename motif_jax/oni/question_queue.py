"""Queues of the questions of a training: a bounded one of distinct questions, and the published one."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import operator
from collections.abc import Iterator

Items = tuple[str, ...]
# Order -> attributes of `Pending`: of two questions the one with the larger is asked first.
_RANKS = {"frequent": ("count", "met"), "newest": ("met",), "uncertain": ("score", "count", "met")}
# Seconds before a failed question is asked again, doubled each time: it may be the cause of the failure.
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0


@dataclasses.dataclass(slots=True, eq=False)
class Pending:
    """A question that is queued or in flight; `count` steps showed it, `met` numbers the `enqueue` that showed it last.

    `attempts`, `failures`: answers without a verdict, and failed requests. `ready`: when to ask it again, by the clock of `take`.
    `met_as`: the items in the training's orders, where one question serves several; empty if equal to `items`.
    """

    items: Items
    count: int = 0
    score: float = 0.0
    met: int = 0
    attempts: int = 0
    failures: int = 0
    ready: float = 0.0
    met_as: tuple[Items, ...] = ()


class QuestionQueue:
    """Distinct questions, in an order of `_RANKS`; `shrink` drops the least wanted beyond `size`."""

    def __init__(self, size: int, order: str = "frequent") -> None:
        self.dropped = 0
        self._size, self._rank = size, operator.attrgetter(*_RANKS[order])
        self._waiting: dict[Items, Pending] = {}
        self._meetings = itertools.count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._waiting.values())

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> Pending:
        pending = self._waiting.setdefault(items, Pending(items))
        pending.count += count
        pending.score = score
        pending.met = next(self._meetings)
        return pending

    def take(self, most: int, now: float) -> list[Pending]:
        ready = (pending for pending in self._waiting.values() if pending.ready <= now)
        taken = heapq.nlargest(most, ready, key=self._rank)
        for pending in taken:
            del self._waiting[pending.items]
        return taken

    def give_back(self, pending: Pending) -> None:
        self._waiting[pending.items] = pending

    def failed(self, pending: Pending, now: float) -> None:
        """Returns a question that could not be answered; it waits, so that others are tried first."""
        pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(pending.failures, 10))
        pending.failures += 1
        pending.ready = now + pause
        self.give_back(pending)

    def shrink(self) -> None:
        excess = len(self._waiting) - self._size
        if excess > 0:
            for pending in heapq.nsmallest(excess, self._waiting.values(), key=self._rank):
                del self._waiting[pending.items]
            self.dropped += excess


class PublishedQueue(list[Pending]):
    """ONI's queue (compat.oni_requeue): an entry a step, whole batches, the newest first. Of too many the oldest go."""

    def __init__(self, size: int, batch: int) -> None:
        super().__init__()
        self.dropped = 0
        self._size, self._batch = size, batch

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> None:
        self += [Pending(items, count=1) for _ in range(count)]

    def take(self, most: int, now: float) -> list[Pending]:
        if most < self._batch:
            return []
        taken = self[-self._batch :]
        del self[-self._batch :]
        return taken[::-1]

    def give_back(self, pending: Pending) -> None:
        self.append(pending)

    def failed(self, pending: Pending, now: float) -> None:
        self.append(pending)

    def shrink(self) -> None:
        excess = len(self) - self._size
        if excess > self._size // 8:
            del self[:excess]
            self.dropped += excess
