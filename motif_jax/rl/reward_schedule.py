"""When a reward takes how many gradient steps, and which labels each draws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motif_jax.support import seeds

# Published: from so many labels on, steps no longer follow arrivals.
LARGE = 25_000
# Steps that are still to be taken, at most: where labels keep coming, training keeps on.
MOST_OWED = 1024


class Schedule:
    """Counts the steps that arrivals call for.

    'budget': each arrival calls for `per_arrival` steps, of which at most `per_update` are taken an update.
    'published': all of them in one piece; from 25,000 labels on, one step an update instead (the published code trains at exactly
    25,000 in neither way). There an arrival is a call of up to `call` questions, whose answers come together: where they come one by
    one, they are one arrival when so many have come or none is being asked any more.

    Args:
      name: one of these.
      per_arrival: steps.
      per_update: steps at most.
      call: questions of a published call.

    Attributes:
      owed: steps that are still to be taken; at most `MOST_OWED`.
      dropped: steps that arrivals called for beyond that: labels come faster than can be trained on them.
      come: labels of a published call that is not complete.
    """

    NAMES = ("budget", "published")

    def __init__(self, name: str, per_arrival: int, per_update: int, call: int) -> None:
        self._published = name == "published"
        self._per_arrival, self._per_update, self._call = per_arrival, per_update, call
        self.owed = self.dropped = self.come = 0

    def update(self, arrived: int, size: int, asking: int) -> None:
        """Called once an update: `arrived` new labels, `size` in all, `asking` questions pending."""
        if self._published and size >= LARGE:
            self.owed, self.come = 1, 0
            return
        self.come += arrived
        if not self.come or (self._published and asking and self.come < self._call):
            return
        self.come = 0
        most = self.owed + self._per_arrival
        self.owed = min(most, max(MOST_OWED, self._per_arrival))
        self.dropped += most - self.owed

    def amount(self) -> int:
        """Steps to take now, in one piece that ends before the labels of many calls have come."""
        return min(self.owed, self._per_arrival if self._published else self._per_update)

    def taken(self, amount: int) -> None:
        """Called after steps were taken."""
        self.owed = max(0, self.owed - amount)


def draws(
    seed: int, first: int, amount: int, size: int, batch_size: int, epochs: bool
) -> Iterator[np.ndarray]:
    """Indices int64 [n] of the labels of each of `amount` steps, n at most `batch_size`.

    Args:
      seed: of the run.
      first: steps of the run before them.
      amount: how many.
      size: labels that there are.
      batch_size: of a full batch.
      epochs: True: through shuffled epochs that begin with the first step, whose last batch is smaller (published for
        the classifier below 25,000). False: a fresh uniform batch without replacement each step.
    """
    if not epochs:
        for step in range(first, first + amount):
            rng = seeds.rng(seed, "reward batch", step)
            yield rng.permutation(size)[:batch_size]
        return
    rng = seeds.rng(seed, "reward epochs", first)
    order, start = rng.permutation(size), 0
    for _ in range(amount):
        if start >= size:
            order, start = rng.permutation(size), 0
        yield order[start : start + batch_size]
        start += batch_size
