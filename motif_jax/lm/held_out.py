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
        exact = Fraction(share).limit_denominator(_FINEST) if every <= _FINEST else Fraction(1, every)
        return cls(exact, seeds.derive(seed, "held out") % every)

    def holds(self, place: int | np.ndarray) -> Any:
        """Whether the item of an index, or of each index int64 [N], is held out: a bool, or bool [N]."""
        of, before = self.share, place + self.share.denominator - 1 - self.turn
        return (before + 1) * of.numerator // of.denominator > before * of.numerator // of.denominator
