"""Queues of the questions of a training: a bounded one of distinct questions, and the published
one.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import operator
from collections.abc import Iterator

Items = tuple[str, ...]
# Order -> attributes of `Pending`: of two questions the one with the larger is asked first.
_RANKS = {
    "frequent": ("count", "last_enqueued"),
    "newest": ("last_enqueued",),
    "uncertain": ("score", "count", "last_enqueued"),
}
# Seconds before a failed question is asked again, doubled each time: it may be the cause of the
# failure.
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0


@dataclasses.dataclass(slots=True, eq=False)
class Pending:
    """A question that is queued or in flight.

    Attributes:
      items: the texts in the order in which they are asked.
      count: steps that showed it.
      score: uncertainty of the reward about it.
      last_enqueued: number of the `enqueue` that showed it last.
      attempts: answers without a verdict.
      failures: failed requests.
      ready: when it may be asked again, by the clock of `take`.
      seen_orders: the items in the orders in which the training showed them, where one question
        serves several; empty if that is `items` alone.
    """

    items: Items
    count: int = 0
    score: float = 0.0
    last_enqueued: int = 0
    attempts: int = 0
    failures: int = 0
    ready: float = 0.0
    seen_orders: tuple[Items, ...] = ()


class QuestionQueue:
    """Distinct questions, in an order of `_RANKS`; `shrink` drops the last in the order beyond
    `size`.
    """

    def __init__(self, size: int, order: str = "frequent") -> None:
        self.dropped = 0
        self._size = size
        self._rank = operator.attrgetter(*_RANKS[order])
        self._waiting: dict[Items, Pending] = {}
        self._enqueue_numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._waiting.values())

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> Pending:
        """Adds a question, or counts that it was shown again; the newest score is its score."""
        pending = self._waiting.setdefault(items, Pending(items))
        pending.count += count
        pending.score = score
        pending.last_enqueued = next(self._enqueue_numbers)
        return pending

    def take(self, limit: int, now: float) -> list[Pending]:
        """Removes and returns the first `limit` questions of the order that are ready at `now`
        (monotonic seconds).
        """
        ready = (pending for pending in self._waiting.values() if pending.ready <= now)
        # Ranks change with each `enqueue`, so that no order is kept.
        first = heapq.nlargest(limit, ready, key=self._rank)
        for pending in first:
            del self._waiting[pending.items]
        return first

    def give_back(self, pending: Pending) -> None:
        """Returns a question that has to be asked again."""
        self._waiting[pending.items] = pending

    def failed(self, pending: Pending, now: float) -> None:
        """Returns a question that could not be answered; it waits, so that others are tried
        first.
        """
        pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(pending.failures, 10))
        pending.failures += 1
        pending.ready = now + pause
        self.give_back(pending)

    def shrink(self) -> None:
        """Drops the last questions of the order beyond the queue's size."""
        excess = len(self._waiting) - self._size
        if excess > 0:
            for pending in heapq.nsmallest(excess, self._waiting.values(), key=self._rank):
                del self._waiting[pending.items]
            self.dropped += excess


class PublishedQueue(list[Pending]):
    """ONI's queue (compat.oni_requeue): an entry a step, the newest first. Of too many the oldest
    go.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dropped = 0
        self._size = size

    def enqueue(self, items: Items, count: int, score: float = 0.0) -> None:
        """Adds `count` entries of a question."""
        # Objects of their own: each entry is in flight by itself.
        self += [Pending(items, count=1) for _ in range(count)]

    def take(self, limit: int, now: float) -> list[Pending]:
        """Removes and returns the `limit` newest entries, the newest first."""
        first = max(0, len(self) - limit)
        newest = self[first:]
        del self[first:]
        return newest[::-1]

    def give_back(self, pending: Pending) -> None:
        """Returns an entry that has to be asked again."""
        self.append(pending)

    def failed(self, pending: Pending, now: float) -> None:
        """Returns an entry whose request failed."""
        self.append(pending)

    def shrink(self) -> None:
        """Drops the oldest entries beyond the queue's size."""
        excess = len(self) - self._size
        # To remove from the front moves all others: an eighth of them at a time.
        if excess > self._size // 8:
            del self[:excess]
            self.dropped += excess
