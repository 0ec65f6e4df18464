from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from motif_jax.core import seeds
from motif_jax.lm.held_out import HeldOut


@pytest.mark.parametrize("share", [0.5, 0.45, 0.4, 0.3, 0.123, 0.05])
def test_the_share_that_is_given_is_held_out_evenly(share: float) -> None:
    held, most = HeldOut.of(share, seed=3).holds(np.arange(10_000)), int(1000 * share) + 1
    assert held.sum() == pytest.approx(10_000 * share, abs=1)
    assert {*held.reshape(10, 1000).sum(axis=1)} <= {most - 2, most - 1, most}


@pytest.mark.parametrize("every", [2, 3, 7, 50, 999, 10**6, 3 * 10**6])
def test_one_of_n_is_the_same_one_as_ever(every: int) -> None:
    held, turn = HeldOut.of(1 / every, seed=7), seeds.derive(7, "held out") % every
    assert held == (Fraction(1, every), turn)
    for start in (0, max(0, turn - 20), 5 * every + turn - 20):
        places = np.arange(start, start + 2000)
        np.testing.assert_array_equal(held.holds(places), places % every == turn)
        assert held.holds(start + 20) is ((start + 20) % every == turn)
