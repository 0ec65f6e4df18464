from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports import statistics
from motif_jax.reports.statistics import (
    Estimate,
    Summary,
    bootstrap,
    interquartile_mean,
    paired_difference,
    probability_of_improvement,
    summarise,
    wilson_interval,
)


def test_interquartile_mean_is_scipys_trimmed_mean():
    from scipy.stats import trim_mean

    generator = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 7, 8, 100, 101):
        values = generator.normal(size=(3, n))
        np.testing.assert_allclose(interquartile_mean(values), trim_mean(values, 0.25, axis=-1), rtol=1e-12)


def test_intervals_agree_with_rliable():
    from rliable import library, metrics

    values = np.random.default_rng(1).gamma(2, 10, 200)
    ours = summarise(values, resamples=4000)
    point, interval = library.get_interval_estimates(
        {"a": values[:, None]},
        lambda x: np.array(
            [metrics.aggregate_iqm(x), metrics.aggregate_mean(x), metrics.aggregate_median(x)]
        ),
        reps=4000,
        random_state=np.random.RandomState(0),
    )
    # rliable's median is over tasks of the means over runs: with one task it is the mean.
    for estimate, column in ((ours.iqm, 0), (ours.mean, 1)):
        assert estimate.value == pytest.approx(point["a"][column], rel=1e-12)
        width = interval["a"][1, column] - interval["a"][0, column]
        assert estimate.low == pytest.approx(interval["a"][0, column], abs=0.1 * width)
        assert estimate.high == pytest.approx(interval["a"][1, column], abs=0.1 * width)


def test_intervals_cover_the_truth_as_often_as_they_say():
    generator = np.random.default_rng(2)
    inside = 0
    for _ in range(200):
        estimate = bootstrap(generator.normal(3, 2, 50), [lambda x: x.mean(-1)], resamples=400)[0]
        inside += estimate.low <= 3 <= estimate.high
    assert 0.88 < inside / 200 < 0.99


def test_results_do_not_change_between_calls_or_with_chunks(monkeypatch):
    values = np.random.default_rng(3).normal(size=500)
    first = summarise(values)
    assert summarise(values) == first
    monkeypatch.setattr(statistics, "_CHUNK", 500 * 7)
    assert summarise(values) == first
    assert Summary.from_dict(first.as_dict()) == first


def test_wilson_interval():
    none = wilson_interval(np.zeros(20))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(0.1611, abs=1e-4)
    half = wilson_interval([0, 1] * 50)
    assert (half.low, half.high) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_differences_and_improvement():
    generator = np.random.default_rng(4)
    base = generator.normal(0, 10, 300)
    better = base + 1 + generator.normal(0, 0.1, 300)
    difference = paired_difference(better, base)
    assert difference.low < 1 < difference.high < 1.1
    assert probability_of_improvement([2, 3], [1, 2]) == 0.875
    assert probability_of_improvement([1, 1], [1]) == 0.5
    assert Estimate(1, 0, 2).disjoint(Estimate(4, 2.5, 5))
    assert not Estimate(1, 0, 2).disjoint(Estimate(2, 1.5, 5))


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_nothing_is_said_of_no_or_broken_values(values):
    with pytest.raises(ValueError, match="needs finite ones"):
        summarise(values)
