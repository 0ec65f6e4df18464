"""Where a reward stands before a batch."""

from __future__ import annotations

import pytest

from motif_jax.rewards.moment import Moments, RewardSnapshot


def test_a_moment_that_is_forgotten_is_no_other_one() -> None:
    moments = Moments(3)
    assert moments.before(7) == RewardSnapshot(7)
    for number in range(7, 11):
        moments.add(RewardSnapshot(number, labels=number))
    assert moments.before(8).labels == 8
    with pytest.raises(RuntimeError, match="before batch 7 is forgotten: 8"):
        moments.before(7)
