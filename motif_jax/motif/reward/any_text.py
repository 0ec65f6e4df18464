"""A reward that has no taste: the control of rewards that have one."""

from __future__ import annotations

from typing import Self

from motif_jax.motif.reward.frozen_text import FrozenTextReward
from motif_jax.rl.intrinsic import RewardSetup


class AnyTextReward(FrozenTextReward):
    """Kind 'any_text': 1 for every text but the empty one.

    With `reward.count_exponent` it pays for texts that are new in an episode, as a count-based
    bonus does.
    """

    description = "1 for every text but the empty one"

    @classmethod
    def make(cls, setup: RewardSetup) -> Self:
        return cls(setup)

    def value(self, text: bytes) -> float:
        return 1.0 if text else 0.0
