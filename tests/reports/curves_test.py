from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.reports.curves import efficiency, joined_stretches, learning_curve, smooth

TEN = Curve(np.arange(10.0), np.arange(10.0) ** 2)


@pytest.mark.parametrize(
    ("least", "edges"),
    [(1, [0, 3, 6, 9]), (3, [0, 3, 6, 9]), (4, [0, 6, 9]), (5, [0, 9]), (11, [0])],
)
def test_stretches_are_joined_until_each_holds_enough(least, edges):
    assert joined_stretches([TEN], 9.0, 3, least).tolist() == edges
    longer = Curve(np.arange(0.0, 10.0, 0.1), np.zeros(100))
    assert joined_stretches([longer, TEN], 9.0, 3, least).tolist() == edges, "enough of every curve"


def steps_of(count: int) -> Curve:
    return Curve(3.0 * np.arange(count), np.arange(count) % 7.0)


AT_ONCE = Curve(np.full(4, 7.0), np.arange(4.0))
GAPS = Curve(np.arange(5.0), np.array([1.0, np.nan, 3.0, np.nan, 6.0]))
RARE = Curve(steps_of(52).x, (steps_of(52).y > 4).astype(float))
MANY = Curve(np.arange(600.0), np.arange(600.0) * 7 % 13)


def test_a_stretch_has_its_values_mean_and_band():
    smoothed = smooth(TEN, stretches=3)

    # 0 to 2, 3 to 5, 6 to 9.
    np.testing.assert_allclose(smoothed.x, [1, 4, 7.5])
    np.testing.assert_allclose(smoothed.mean, [5 / 3, 50 / 3, 57.5])
    assert smoothed.count.tolist() == [3, 3, 4]
    assert (smoothed.low < smoothed.mean).all()
    assert (smoothed.mean < smoothed.high).all()
    means = "mean over each of 3 stretches of steps, 3.2 apart, 3 to 4 games in each"
    assert smoothed.caption("games") == f"{means}; band: 95 % interval of the mean; n = 10"


def test_a_band_is_narrower_where_a_stretch_holds_more():
    few = smooth(Curve(MANY.x[:60], MANY.y[:60]), stretches=2)
    many = smooth(MANY, stretches=2)

    assert (many.high - many.low).max() < (few.high - few.low).min()


def test_a_rate_has_an_interval_between_no_and_all():
    smoothed = smooth(RARE, stretches=2, rate=True)

    np.testing.assert_allclose(smoothed.mean, [6 / 26, 8 / 26])
    # Wilson's interval of 6 of 26.
    assert (smoothed.low[0], smoothed.high[0]) == pytest.approx((0.1103, 0.4205), abs=1e-4)


def test_values_that_are_missing_are_left_out():
    smoothed = smooth(GAPS)

    assert (smoothed.x.tolist(), smoothed.count.tolist()) == ([2], [3])
    assert smoothed.mean == pytest.approx([10 / 3])


def test_values_of_one_step_are_one_stretch():
    smoothed = smooth(AT_ONCE)

    assert (smoothed.x.tolist(), smoothed.mean.tolist(), smoothed.count.tolist()) == (
        [7],
        [1.5],
        [4],
    )
    assert "mean over each of one stretch of steps, 4 games in each" in smoothed.caption("games")


def test_fewer_than_fifty_values_have_wider_stretches():
    """Ten are wanted in each."""
    assert smooth(steps_of(50)).count.tolist() == [10] * 5
    assert smooth(steps_of(49)).count.sum() == 49


@pytest.mark.parametrize(
    ("curve", "values"), [(TEN, 10), (GAPS, 3), (Curve(GAPS.x, np.full(5, np.nan)), 0)]
)
def test_few_values_without_a_band_are_shown_each(curve, values):
    stretches = {} if curve is TEN else {"stretches": 3}

    smoothed = smooth(curve, band=False, **stretches)

    assert smoothed.low is smoothed.high is None
    assert smoothed.count.tolist() == [1] * values
    assert smoothed.mean.tolist() == curve.y[np.isfinite(curve.y)].tolist()


def test_as_many_values_as_stretches_are_not_averaged():
    uneven = Curve(np.array([0.0, 1.0, 99.0]), np.array([5.0, 7.0, 1.0]))

    smoothed = smooth(uneven, stretches=3, band=False)

    assert smoothed.mean.tolist() == [5, 7, 1]


def test_more_values_than_stretches_are_averaged():
    uneven = Curve(np.array([0.0, 1.0, 99.0]), np.array([5.0, 7.0, 1.0]))

    smoothed = smooth(uneven, stretches=2, band=False)

    assert (smoothed.mean.tolist(), smoothed.count.tolist()) == ([6, 1], [2, 1])


def test_one_value_has_no_band():
    smoothed = smooth(Curve(np.ones(1), np.ones(1)))

    assert smoothed.caption("games") == "n = 1: no band"
    assert np.isnan([smoothed.low, smoothed.high]).all()


def test_a_series_is_drawn_through_the_means():
    smoothed = smooth(TEN, stretches=3)

    series = smoothed.series("s")
    assert series.name == "s"
    for drawn, value in (
        (series.x, smoothed.x),
        (series.y, smoothed.mean),
        (series.low, smoothed.low),
    ):
        np.testing.assert_array_equal(drawn, value)


# The longest ends at the shortest's end.
SEEDS = [
    *(Curve(TEN.x, TEN.y + shift) for shift in (0.0, 1.0, 5.0)),
    Curve(np.append(TEN.x, 99.0), np.append(TEN.y, 1e9)),
]


def test_learning_curves_average_the_steps_that_all_seeds_have():
    line = learning_curve("m", SEEDS, points=3)

    assert (line.name, line.x.tolist(), line.dashed) == ("m (n = 4)", [1.5, 4.5, 7.5], False)
    # Of four seeds the lowest and the highest do not count.
    means = np.array([5 / 3, 50 / 3, 57.5])
    for curve, shift in ((line.y, 0.5), (line.low, 0), (line.high, 5)):
        np.testing.assert_allclose(curve, means + shift)


def test_a_learning_curve_of_one_seed_has_no_band():
    line = learning_curve("m", SEEDS[:1], points=2)

    assert (line.name, line.y.tolist(), line.low, line.high) == ("m (n = 1)", [6, 51], None, None)


def test_seeds_without_common_steps_have_no_curve():
    apart = [Curve(np.arange(3.0), np.ones(3)), Curve(np.arange(10.0, 13), np.ones(3))]

    line = learning_curve("m", apart, dashed=True)

    assert (line.x.size, line.low, line.dashed) == (0, None, True)


def test_seeds_without_numbers_have_no_curve():
    assert learning_curve("m", [Curve(np.arange(3.0), np.full(3, np.nan))]).x.size == 0


@pytest.mark.parametrize(
    ("points", "least", "number"), [(5, 3, 5), (99, 3, 5), (5, 1, 5), (99, 1, 15)]
)
def test_points_of_a_learning_curve_hold_enough_of_each_seed(points, least, number):
    scaled = [Curve(np.arange(15.0), np.arange(15.0) * scale) for scale in (1, 3)]

    line = learning_curve("m", scaled, points=points, least=least)

    assert len(line.x) == number
    np.testing.assert_allclose(line.low * 3, line.high)
    np.testing.assert_allclose(line.y, line.low * 2)


def test_episodes_that_end_at_one_step_count_alike():
    curve = Curve(np.repeat([1e3, 2e3, 3e3], 20), np.tile([1.0] + [0.0] * 18 + [1.0], 3))

    assert efficiency(curve, 3000.0) == pytest.approx(0.1)
