"""What an order of asking comes to on a stream of batches, without anybody being asked: each call to the annotator lasts so many batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from motif_jax.annotation.queue import Items, Pending, Queue


@dataclasses.dataclass(frozen=True)
class Simulated:
    """What came out.

    Attributes:
      asked: questions asked.
      distinct: how many of them were distinct.
      met: distinct texts that were met.
      labelled_share: share of the steps of the last tenth of the batches whose text had a label.
      backlog: what waited at the end.
      dropped: what a full queue threw away.
    """

    asked: int
    distinct: int
    met: int
    labelled_share: float
    backlog: int
    dropped: int


def simulate(
    queue: Queue,
    batches: Sequence[Sequence[tuple[Items, int]]],
    *,
    batches_a_call: int,
    batch: int = 100,
    once: bool = True,
) -> Simulated:
    """Asks one call after the other, each of up to `batch` questions.

    Args:
      queue: empty.
      batches: of each batch the distinct texts with the number of their steps, in the order of their last occurrence.
      batches_a_call: how long a call lasts.
      batch: questions of a call.
      once: what is being asked is not queued again; False as published (`PublishedQueue`).
    """
    labelled: set[Items] = set()
    asked_before: set[Items] = set()
    met: set[Items] = set()
    call: list[Pending] = []
    ends = asked = 0
    steps = [0, 0]
    for number, rows in enumerate(batches):
        if call and number >= ends:
            labelled.update(pending.items for pending in call)
            call = []
        flying = {pending.items for pending in call} if once else set()
        for items, count in rows:
            met.add(items)
            if number >= len(batches) * 9 // 10:
                steps[items in labelled] += count
            if items not in labelled and items not in flying:
                queue.meet(items, count)
        if not call:
            call = queue.take(batch, float(number))
            ends = number + batches_a_call
            asked += len(call)
            asked_before.update(pending.items for pending in call)
    share = steps[True] / max(1, sum(steps))
    return Simulated(asked, len(asked_before), len(met), share, len(queue), queue.dropped)
