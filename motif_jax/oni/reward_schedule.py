"""Schedules an online reward's gradient steps and draws the labels of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motif_jax.core import seeds

# Published: with at least so many labels, steps no longer follow arrivals.
LARGE = 25_000
# Steps still to be taken; more are dropped, since labels come faster than training.
MAX_OWED = 1024


class Schedule:
    """Counts the gradient steps that labels call for: those still `owed`, and those `dropped`
    beyond `MAX_OWED`.

    `arrived` counts labels whose steps are not owed yet.

    'budget': labels that arrive in one update call for `per_arrival` steps together, of which at
    most `per_update` are taken an update. 'published': all in one piece; from 25,000 labels on, one
    step an update (the published code trains at exactly 25,000 in neither way). Here an arrival is
    a call of up to `call` questions, answered together; single answers count as one arrival when
    `call` have come or none is pending.
    """

    def __init__(self, name: str, per_arrival: int, per_update: int, call: int) -> None:
        self._published = name == "published"
        self._per_arrival = per_arrival
        self._per_update = per_update
        self._call = call
        self.owed = 0
        self.dropped = 0
        self.arrived = 0

    def update(self, new_labels: int, size: int, asking: int) -> None:
        """Called once per update: `new_labels` have arrived (published: answers), there are `size`
        in all, and `asking` questions are pending.
        """
        if self._published and size >= LARGE:
            self.owed = 1
            self.arrived = 0
            return

        self.arrived += new_labels
        is_incomplete_call = self._published and asking and self.arrived < self._call
        if not self.arrived or is_incomplete_call:
            return
        self.arrived = 0
        total = self.owed + self._per_arrival
        # An arrival's own steps are never dropped.
        self.owed = min(total, max(MAX_OWED, self._per_arrival))
        self.dropped += total - self.owed

    def amount(self) -> int:
        """Steps of the next job: few, so that it ends before the labels of many calls have come."""
        return min(self.owed, self._per_arrival if self._published else self._per_update)

    def count_taken(self, amount: int) -> None:
        """Counts steps that were taken."""
        self.owed = max(0, self.owed - amount)


def draws(
    seed: int, first: int, amount: int, size: int, batch_size: int, epochs: bool
) -> Iterator[np.ndarray]:
    """Indices int64 [n] of the labels, of `size`, of each of `amount` steps, n at most
    `batch_size`.

    Args:
      first: steps of the run before them.
      epochs: True: shuffled epochs from the first step, the last batch of each smaller (published
        for the classifier below 25,000). False: a fresh uniform batch without replacement each
        step.
    """
    if not epochs:
        for step in range(first, first + amount):
            # A generator for each step: a resumed run draws as the undisturbed one.
            rng = seeds.rng(seed, "reward batch", step)
            yield rng.permutation(size)[:batch_size]
        return
    rng = seeds.rng(seed, "reward epochs", first)
    # As published, epochs begin anew at each arrival.
    order = rng.permutation(size)
    start = 0
    for _ in range(amount):
        if start >= size:
            order = rng.permutation(size)
            start = 0
        yield order[start : start + batch_size]
        start += batch_size
