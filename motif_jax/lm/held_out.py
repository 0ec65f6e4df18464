"""Chooses the items of a dataset that are held out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import seeds

# Largest denominator of a share: 0.4 becomes 2 of 5, which no float is exactly.
_FINEST = 10**6


class HeldOut(NamedTuple):
    """A share of the items, evenly spread: every n-th item where the share is 1 / n."""

    share: Fraction
    turn: int  # index of the first held-out item where the share is 1 / n; drawn from the seed

    @classmethod
    def of(cls, share: float, seed: int) -> HeldOut:
        """Makes it from a config's share, in (0, 1], and its seed."""
        every = round(1 / share)
        fraction = Fraction(1, every)
        if every <= _FINEST:
            fraction = Fraction(share).limit_denominator(_FINEST)
        return cls(fraction, seeds.derive(seed, "held out") % every)

    def holds(self, index: int | np.ndarray) -> Any:
        """Whether the item of an index, or of each index int64 [N], is held out: a bool, or bool
        [N].
        """
        numerator = self.share.numerator
        denominator = self.share.denominator
        # Of the first n items n * share are held out, rounded down: an item is where the count
        # rises.
        shifted = index + denominator - 1 - self.turn
        count_before = shifted * numerator // denominator
        count_with = (shifted + 1) * numerator // denominator
        return count_with > count_before
