from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.reports.smoothing import joined_stretches, learning_curve, smooth
from tests.recorded_outputs import assert_matches_packed_recording

TEN = Curve(np.arange(10.0), np.arange(10.0) ** 2)


@pytest.mark.parametrize(
    ("least", "edges"), [(1, [0, 3, 6, 9]), (3, [0, 3, 6, 9]), (4, [0, 6, 9]), (5, [0, 9]), (11, [0])]
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


def test_a_band_is_of_the_values_of_a_stretch(record):
    cases = [(TEN, {"stretches": 3}), (RARE, {"stretches": 2, "rate": True}), (MANY, {"stretches": 2})]
    cases += [(one, {}) for one in (steps_of(49), steps_of(50), GAPS, AT_ONCE)]
    cases += [
        (one, {"band": False, "stretches": 3}) for one in (TEN, GAPS, Curve(GAPS.x, np.full(5, np.nan)))
    ]
    cases += [(Curve(np.ones(1), np.ones(1)), {}), (TEN, {"band": False})]
    found = [smooth(curve, **options) for curve, options in cases]
    told = {
        f"{at} {len(one.x) and one.caption('games')}": f"{one} {one.series('s')}"
        for at, one in enumerate(found)
    }
    assert_matches_packed_recording("smoothing", told, record)


def test_learning_curves_average_the_steps_that_all_seeds_have(record):
    seeds = [Curve(TEN.x, TEN.y + shift) for shift in (0.0, 1.0, 5.0)]
    # The longest ends at the shortest's end.
    seeds.append(Curve(np.append(TEN.x, 99.0), np.append(TEN.y, 1e9)))
    line = learning_curve("m", seeds, points=3)
    assert (line.name, line.x.tolist(), line.dashed) == ("m (n = 4)", [1.5, 4.5, 7.5], False)
    # Of four seeds the lowest and the highest do not count.
    means = np.array([5 / 3, 50 / 3, 57.5])
    for found, shift in ((line.y, 0.5), (line.low, 0), (line.high, 5)):
        np.testing.assert_allclose(found, means + shift)
    long = [Curve(np.arange(15.0), np.arange(15.0) * scale) for scale in (1, 3)]
    apart = [Curve(np.arange(3.0), np.ones(3)), Curve(np.arange(10.0, 13), np.ones(3))]
    cases = [
        (seeds, {"points": 3, "least": 9, "dashed": True}),
        (seeds[:1], {"points": 2}),
        (apart, {"dashed": True}),
    ]
    cases += [
        (long, {"points": points, "least": least}) for points, least in ((5, 3), (99, 1), (5, 1), (99, 3))
    ]
    cases += [([Curve(np.arange(3.0), np.full(3, np.nan))], {}), ([Curve(np.ones(4), np.ones(4))] * 2, {})]
    told = {str(place): f"{learning_curve('m', of, **options)}" for place, (of, options) in enumerate(cases)}
    assert_matches_packed_recording("learning_curves", told, record)
