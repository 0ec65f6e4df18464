from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports.smoothing import joined_stretches, learning_curve, smooth
from motif_jax.support.metric_files import Curve

TEN = Curve(np.arange(10.0), np.arange(10.0) ** 2)


@pytest.mark.parametrize(
    ("least", "edges"), [(1, [0, 3, 6, 9]), (3, [0, 3, 6, 9]), (4, [0, 6, 9]), (5, [0, 9]), (11, [0])]
)
def test_stretches_are_joined_until_each_holds_enough(least, edges):
    assert joined_stretches([TEN], 9.0, 3, least).tolist() == edges
    longer = Curve(np.arange(0.0, 10.0, 0.1), np.zeros(100))
    assert joined_stretches([longer, TEN], 9.0, 3, least).tolist() == edges, "enough of every curve"


def test_means_of_stretches_keep_all_values():
    found = smooth(TEN, stretches=3, band=False)
    assert (found.x.tolist(), found.count.tolist()) == ([1, 4, 7.5], [3, 3, 4])
    assert found.mean.tolist() == [5 / 3, 50 / 3, 57.5]
    assert (found.low, found.high) == (None, None)
    said = "mean over each of 3 stretches of steps, 3.2 apart, 3 to 4 games in each; n = 10"
    assert found.caption("games") == said
    assert smooth(TEN, band=False).caption("games") == "every value; n = 10"
    banded = smooth(TEN, stretches=3)
    assert banded.mean.tolist() == found.mean.tolist(), "a fifth of few values is enough"
    assert banded.caption("games") == said.replace("each;", "each; band: 95 % interval of the mean;")
    hundred = Curve(np.arange(100.0), np.ones(100))
    assert smooth(hundred).count.tolist() == [10] * 9 + [10], "ten where there are fifty and more"
    one = smooth(Curve(np.ones(1), np.ones(1)))
    assert (one.caption("games"), np.isnan(one.low).all()) == ("n = 1: no band", True)
    assert len(smooth(Curve(np.arange(3.0), np.full(3, np.nan))).x) == 0


def test_learning_curves_average_the_steps_that_all_seeds_have():
    seeds = [Curve(TEN.x, TEN.y + shift) for shift in (0.0, 1.0, 5.0)]
    # The longest ends at the shortest's end.
    seeds.append(Curve(np.append(TEN.x, 99.0), np.append(TEN.y, 1e9)))
    line = learning_curve("m", seeds, points=3)
    assert (line.name, line.x.tolist()) == ("m (n = 4)", [1.5, 4.5, 7.5])
    # Of four seeds the lowest and the highest do not count.
    np.testing.assert_allclose(line.y, np.array([5 / 3, 50 / 3, 57.5]) + 0.5)
    np.testing.assert_allclose(line.low, np.array([5 / 3, 50 / 3, 57.5]))
    np.testing.assert_allclose(line.high, np.array([5 / 3, 50 / 3, 57.5]) + 5, atol=2.1)
    assert len(learning_curve("m", seeds, points=3, least=9).x) == 3, "a fifth of few"
    assert learning_curve("m", seeds[:1]).low is None
    apart = [Curve(np.arange(3.0), np.ones(3)), Curve(np.arange(10.0, 13), np.ones(3))]
    assert len(learning_curve("m", apart).x) == 0, "nothing is known of both"
    assert len(learning_curve("m", [Curve(np.arange(3.0), np.full(3, np.nan))]).x) == 0
    assert len(learning_curve("m", [Curve(np.ones(4), np.ones(4))] * 2).x) == 1


def test_bands_keep_to_what_is_possible_and_have_a_width():
    generator = np.random.default_rng(2)
    gold = smooth(Curve(np.arange(200.0), np.where(generator.random(200) < 0.1, 25.0, 0.0)))
    assert (gold.low.min(), gold.high.max() <= 25) == (0, True)
    assert ((gold.high > gold.low) == (gold.mean > 0)).all()
    many = smooth(Curve(np.arange(6000.0), generator.gamma(1, 5, 6000)), stretches=6)
    assert many.high - many.low == pytest.approx(2 * 1.96 * 5 / np.sqrt(1000), rel=0.25)
    success = smooth(Curve(np.arange(200.0), np.zeros(200)), rate=True)
    assert (success.low == 0).all()
    assert (success.high > 0.1).all(), "no success in ten games is not certain failure"
