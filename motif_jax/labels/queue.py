"""Which question is asked next while an agent trains: a bounded queue of distinct questions, and the published one.

The published queue (ONI) holds entries, not questions: what has no label yet enters it again with every batch, as often as it was
met there.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator
from typing import Protocol

Items = tuple[str, ...]
# A question that failed is left alone for so many seconds, twice as long each time: it may be what its server cannot bear.
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# A heap with so many outdated entries for each that is not, and no fewer than this, is made again.
_OUTDATED, _FEWEST = 4, 256


@dataclasses.dataclass(slots=True)
class Pending:
    """A question that waits or is being asked.

    Attributes:
      items: its texts.
      number: given when it leaves the queue.
      count: steps in which it was met since it was queued.
      score: how much its answer is wanted, by the batches that need it; higher is more.
      met: number of the meeting at which it was met last.
      attempts: answers without a verdict until now.
      failures: how often the annotator failed.
      ready: time before which it is not asked again, by the clock of `take`.
      version: of its place in the queue.
      met_as: the items as they were met, where one question serves several; empty where they are the items.
    """

    items: Items
    number: int = 0
    count: int = 0
    score: float = 0.0
    met: int = 0
    attempts: int = 0
    failures: int = 0
    ready: float = 0.0
    version: int = 0
    met_as: tuple[Items, ...] = ()


class Queue(Protocol):
    """Where questions wait.

    Attributes:
      dropped: how many were thrown away because there were too many.
    """

    dropped: int

    def meet(self, items: Items, count: int, score: float = 0.0) -> Pending:
        """Takes note that a question without an answer was met in `count` steps; returns what waits now (or is dropped)."""

    def take(self, most: int, now: float) -> list[Pending]:
        """Up to `most` questions to be asked now, the most wanted first; they leave the queue."""

    def give_back(self, pending: Pending) -> None:
        """Puts a question that was taken back to where it was."""

    def failed(self, pending: Pending, now: float) -> None:
        """Puts a question back that could not be answered; it may have to wait, so that others are tried first."""

    def __len__(self) -> int:
        """How many wait."""

    def __iter__(self) -> Iterator[Pending]:
        """What waits, in no particular order."""


class QuestionQueue:
    """Distinct questions, at most `size`; of more, the least wanted is dropped.

    Orders: 'frequent', what was met in most steps since it was queued, newer first among equals; 'newest', what was met last;
    'uncertain', the highest score, then as 'frequent'.
    """

    def __init__(self, size: int, order: str = "frequent") -> None:
        self.dropped = 0
        self._size, self._order = size, order
        self._waiting: dict[Items, Pending] = {}
        self._paused: dict[Items, Pending] = {}
        self._meetings = itertools.count(1)
        # Both hold (rank, version, question): of one the most wanted comes first, of the other the least.
        self._most = _Heap()
        self._least = _Heap()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._paused)

    def __iter__(self) -> Iterator[Pending]:
        return itertools.chain(self._waiting.values(), self._paused.values())

    def meet(self, items: Items, count: int, score: float = 0.0) -> Pending:
        """Queues a question, or counts it as met again; see `Queue`."""
        pending = self._waiting.get(items) or self._paused.get(items) or Pending(items)
        pending.count += count
        pending.score = score
        pending.met = next(self._meetings)
        if items not in self._paused:
            self._put(pending)
        return pending

    def take(self, most: int, now: float) -> list[Pending]:
        for pending in [paused for paused in self._paused.values() if paused.ready <= now]:
            del self._paused[pending.items]
            self._put(pending)
        return [self._pop(self._most) for _ in range(min(most, len(self._waiting)))]

    def give_back(self, pending: Pending) -> None:
        self._put(pending)

    def failed(self, pending: Pending, now: float) -> None:
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(pending.failures, 10))
        pending.failures += 1
        pending.ready = now + pause
        self._paused[pending.items] = pending
        self._shrink()

    def _rank(self, pending: Pending) -> tuple[float, ...]:
        if self._order == "newest":
            return (pending.met,)
        if self._order == "uncertain":
            return (pending.score, pending.count, pending.met)
        return (pending.count, pending.met)

    def _put(self, pending: Pending) -> None:
        self._waiting[pending.items] = pending
        pending.version += 1
        rank = self._rank(pending)
        self._least.push(rank, pending)
        self._most.push(tuple(-part for part in rank), pending)
        self._shrink()
        for heap in (self._most, self._least):
            heap.tidy(self._waiting)

    def _shrink(self) -> None:
        while len(self) > self._size:
            if len(self._waiting) > len(self._paused):
                self._pop(self._least)
            else:
                del self._paused[next(iter(self._paused))]
            self.dropped += 1

    def _pop(self, heap: _Heap) -> Pending:
        pending = heap.pop(self._waiting)
        del self._waiting[pending.items]
        return pending


class _Heap:
    """Questions by rank, the smallest first; entries of an older version of a question are outdated."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[float, ...], int, Pending]] = []

    def push(self, rank: tuple[float, ...], pending: Pending) -> None:
        heapq.heappush(self._entries, (rank, pending.version, pending))

    def pop(self, waiting: dict[Items, Pending]) -> Pending:
        while True:
            _, version, pending = heapq.heappop(self._entries)
            if waiting.get(pending.items) is pending and pending.version == version:
                return pending

    def tidy(self, waiting: dict[Items, Pending]) -> None:
        """Throws outdated entries away when they are many."""
        if len(self._entries) > max(_FEWEST, _OUTDATED * len(waiting)):
            self._entries = [
                entry
                for entry in self._entries
                if waiting.get(entry[2].items) is entry[2] and entry[2].version == entry[1]
            ]
            heapq.heapify(self._entries)


class PublishedQueue:
    """The published queue (compat.oni_requeue): `batch` entries at a time, the newest first, while none are being asked.

    An entry is added for each step in which something without a label was met, whatever waits or is being asked already.
    Mended without a switch: it is bounded, the oldest entries are dropped.
    """

    def __init__(self, size: int, batch: int) -> None:
        self.dropped = 0
        self._size, self._batch = size, batch
        self._entries: list[Pending] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._entries)

    def meet(self, items: Items, count: int, score: float = 0.0) -> Pending:
        del score
        new = [Pending(items, count=1) for _ in range(count)]
        self._entries += new
        self._shrink()
        return new[-1] if new else Pending(items)

    def take(self, most: int, now: float) -> list[Pending]:
        """See `Queue`; nothing before a whole batch may be asked."""
        del now
        if most < self._batch:
            return []
        taken = self._entries[-self._batch :]
        del self._entries[-self._batch :]
        return taken[::-1]

    def give_back(self, pending: Pending) -> None:
        self._entries.append(pending)
        self._shrink()

    def failed(self, pending: Pending, now: float) -> None:
        """See `Queue`; it is asked again at once."""
        del now
        pending.failures += 1
        self.give_back(pending)

    def _shrink(self) -> None:
        excess = len(self._entries) - self._size
        if excess > self._size // 8:
            del self._entries[:excess]
            self.dropped += excess
