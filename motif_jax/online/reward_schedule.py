"""How many gradient steps a reward takes when, and which labels each draws."""

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
    'published': all of them at once; from 25,000 labels on, one step an update instead (the published code trains at exactly
    25,000 in neither way).

    Args:
      name: one of these.
      per_arrival: steps.
      per_update: steps at most.

    Attributes:
      owed: steps that are still to be taken; at most `MOST_OWED` by 'budget'.
      dropped: steps that arrivals called for beyond that: labels come faster than the budget can train on them.
    """

    NAMES = ("budget", "published")

    def __init__(self, name: str, per_arrival: int, per_update: int) -> None:
        self._published = name == "published"
        self._per_arrival, self._per_update = per_arrival, per_update
        self.owed = self.dropped = 0

    def update(self, arrived: int, size: int) -> None:
        """Hears, once an update, of `arrived` labels, now `size` in all."""
        if self._published and size >= LARGE:
            self.owed = 1
        elif arrived:
            most = self.owed + self._per_arrival
            self.owed = most if self._published else min(most, max(MOST_OWED, self._per_arrival))
            self.dropped += most - self.owed

    def amount(self) -> int:
        """Steps to take now."""
        return self.owed if self._published else min(self.owed, self._per_update)

    def taken(self, amount: int) -> None:
        """Hears that steps were taken."""
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
