"""Chooses the items of a dataset that are held out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from motif_jax.support import seeds

# Shares are fractions of at most this denominator: 0.4 is 2 of 5, although no float is.
_FINEST = 10**6


class HeldOut(NamedTuple):
    """A share of the items, evenly spread: 1 of n where the share is 1 / n.

    Attributes:
      share: of the items.
      turn: place of the first one where it is 1 / n; drawn from the seed.
    """

    share: Fraction
    turn: int

    @classmethod
    def of(cls, share: float, seed: int) -> HeldOut:
        """The items that a config's share, above 0 and at most 1, and its seed hold out."""
        every = round(1 / share)
        exact = Fraction(share).limit_denominator(_FINEST) if every <= _FINEST else Fraction(1, every)
        return cls(exact, seeds.derive(seed, "held out") % every)

    def holds(self, place: int | np.ndarray) -> Any:
        """Whether the item of a place, or those of int64 [N] places, are held out: a bool, or bool [N]."""
        of, before = self.share, place + self.share.denominator - 1 - self.turn
        return (before + 1) * of.numerator // of.denominator > before * of.numerator // of.denominator
