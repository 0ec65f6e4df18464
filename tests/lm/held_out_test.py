"""The share of a dataset that is held out: how large, how even, and which items."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.lm.token_data import HeldOut


@pytest.mark.parametrize("share", [0.5, 0.45, 0.4, 0.3, 0.123, 0.05])
def test_the_share_is_spread_evenly_over_the_items(share: float) -> None:
    is_held_out = HeldOut.of(share, seed=3).holds(np.arange(10_000))

    assert is_held_out.sum() == pytest.approx(10_000 * share, abs=1)
    counts = is_held_out.reshape(10, 1000).sum(axis=1)
    assert np.abs(counts - int(1000 * share)).max() <= 1


@pytest.mark.parametrize("every", [2, 3, 7, 50, 999, 10**6, 3 * 10**6])
def test_one_of_n_items_is_held_out_by_the_seed(every: int) -> None:
    turn = seeds.derive(7, "held out") % every

    held_out = HeldOut.of(1 / every, seed=7)

    assert held_out == (Fraction(1, every), turn)
    for start in (0, max(0, turn - 20), 5 * every + turn - 20):
        index = np.arange(start, start + 2000)
        np.testing.assert_array_equal(held_out.holds(index), index % every == turn)
        # One index gives one bool.
        assert held_out.holds(start + 20) is ((start + 20) % every == turn)
