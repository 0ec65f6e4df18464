from __future__ import annotations

import numpy as np
import pytest

from motif_jax.display import statistics
from motif_jax.play.evaluation_files import games


def test_means_and_middles_have_intervals_of_their_draws(monkeypatch):
    values = np.array([0.0, 1.0, 2.0, 3.0, 100.0, 4.0, 5.0, 6.0])
    found = statistics.summarise(values, resamples=500)
    assert (found.n, found.minimum, found.maximum) == (8, 0, 100)
    assert (found.mean.value, found.median.value, found.iqm.value) == (15.125, 3.5, 3.5)
    assert found.std == pytest.approx(np.std(values))
    bounds = [bound for one in (found.mean, found.median, found.iqm) for bound in (one.low, one.high)]
    assert bounds == pytest.approx([2.059375, 39.875, 1.5, 6, 1.5, 28.75])
    narrow = statistics.summarise(values, resamples=500, confidence=0.5).iqm
    assert (narrow.low, narrow.high) == (2.75, 4.25)
    monkeypatch.setattr(statistics, "_CHUNK", 20)
    assert statistics.summarise(values, resamples=500) == found, "a large table is resampled in parts"
    few = [statistics.mean_of([3.0, 1.0, 8.0], resamples=40, seed=3), statistics.mean_of([3.0, 1.0, 8.0])]
    assert [(one.value, one.low, one.high) for one in few] == [
        (4, pytest.approx(1.65), pytest.approx(6.375)),
        (4, 1, 8),
    ]
    same = statistics.summarise(np.full(5, 2.0))
    assert (same.mean.low, same.mean.value, same.mean.high, same.mean.sign) == (2, 2, 2, 1)
    assert statistics.percentile_interval(np.arange(101.0), 0.9) == pytest.approx((5, 95))
    assert statistics.interquartile_mean(np.array([[1.0, 2, 3, 4, 50], [5, 4, 3, 2, -1]])).tolist() == [3, 3]
    for bad in ([], [1.0, np.nan]):
        with pytest.raises(ValueError, match="needs finite ones"):
            statistics.mean_of(bad)
    assert statistics.probability_of_improvement(np.array([1.0, 2.0]), np.array([0.0, 1.0, 3.0])) == 3.5 / 6


FIRST, SECOND = np.array([3.0, 5.0, 9.0, 2.0]), np.array([1.0, 7.0, 2.0, 2.0])
ONES = np.ones(5)
FOUR_OF_FIVE = np.array([1.0, 1.0, 1.0, 0.0, 1.0])
THREE_OF_FIVE = np.array([1.0, 0.0, 1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("shares", "low", "high"),
    [(np.zeros(20), 0, 0.1192), (FOUR_OF_FIVE, 0.4353, 0.9540), (ONES, 0.6489, 1)],
)
def test_a_rate_has_wilsons_interval(shares, low, high):
    """With z = 1.645, of 20 and of 5."""
    rate = statistics.mean_of(shares, rate=True, confidence=0.9)

    assert (rate.value, rate.low, rate.high) == pytest.approx((shares.mean(), low, high), abs=1e-4)


def test_a_difference_of_pairs_counts_them():
    paired = statistics.difference([(FIRST, SECOND, True)], 200)
    apart = statistics.difference([(FIRST, SECOND, False)], 200)

    assert (paired.value, paired.pairs) == ((2 - 2 + 7 + 0) / 4, 4)
    assert (apart.value, apart.pairs) == (1.75, 0)
    assert paired.low < paired.value < paired.high


def test_differences_of_several_tasks_are_averaged():
    difference = statistics.difference([(FIRST, SECOND, True), (SECOND, FIRST[:3], False)], 200)

    assert difference.value == pytest.approx((1.75 + 3 - 17 / 3) / 2)
    assert difference.pairs == 4


def test_less_confidence_has_a_narrower_interval():
    wide, narrow = (
        statistics.difference([(FIRST, SECOND, False)], 200, confidence, seed=5) for confidence in (0.95, 0.8)
    )

    assert wide.low < narrow.low < narrow.high < wide.high


def test_means_of_many_values_are_drawn_as_normal_ones():
    """More than 20,000 of them, half 1 and half 4: the interval is 1.96 deviations of a difference of means."""
    values = np.tile([1.0, 4.0], 10_001), np.tile([1.0, 4.0], 10_000)
    deviation = np.sqrt(sum(one.var() / one.size for one in values))

    difference = statistics.difference([(*values, False)], 2000)

    assert difference.value == pytest.approx(0)
    assert (difference.low, difference.high) == pytest.approx((-1.96 * deviation, 1.96 * deviation), rel=0.2)


@pytest.mark.parametrize(
    ("one", "two", "value", "clear"),
    [
        (ONES, THREE_OF_FIVE, 0.4, False),
        (ONES, 1 - THREE_OF_FIVE, 0.6, True),
        (FOUR_OF_FIVE, THREE_OF_FIVE, 0.2, False),
        (FOUR_OF_FIVE, 1 - THREE_OF_FIVE, 0.4, False),
    ],
)
def test_rates_of_the_same_games_are_compared_in_pairs(one, two, value, clear):
    difference = statistics.rate_difference(one, two, True)

    assert (difference.value, difference.pairs) == (pytest.approx(value), 5)
    assert (difference.low > 0) == clear
    assert -1 <= difference.low < value < difference.high <= 1


def test_rates_of_other_games_are_compared_by_their_intervals():
    difference = statistics.rate_difference(ONES, THREE_OF_FIVE[:4], False, 0.9)

    assert (difference.value, difference.pairs) == (0.5, 0)
    # Newcombe's interval from Wilson's of 5 of 5 and 2 of 4.
    assert (difference.low, difference.high) == pytest.approx((0.0266, 0.8176), abs=1e-4)


def test_a_gap_pairs_the_games_that_both_played():
    rates = statistics.gap({1: 1.0, 2: 0.0, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 1.0}, True)
    means = statistics.gap({1: 1.0, 2: 0.5, 3: 4.0}, {1: 0.0, 2: 0.0, 9: 1.0}, False, 50, 0.5)

    assert (rates.value, rates.pairs) == (pytest.approx(1 / 3), 3)
    assert (means.value, means.pairs) == (0.75, 2)


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_scipys_bootstrap(paired):
    from scipy.stats import bootstrap as scipys

    generator = np.random.default_rng(4)
    base = generator.gamma(2, 20, 80)
    better = base + generator.gamma(1, 3, 80)
    if paired:
        data, gap = (better - base,), np.mean
    else:
        base = base[:60]
        data, gap = (better, base), lambda x, y, axis: np.mean(x, axis) - np.mean(y, axis)
    theirs = scipys(data, gap, method="percentile", n_resamples=4000, rng=0).confidence_interval
    ours, width = statistics.difference([(better, base, paired)], resamples=4000), theirs.high - theirs.low
    assert ours.value == pytest.approx(better.mean() - base.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.1 * width)
    # The same difference is clear by games that both played, and not by others.
    assert (ours.pairs, ours.sign) == ((80, 1) if paired else (0, 0))
    narrow = statistics.difference([(better, base, paired)], resamples=4000, confidence=0.5)
    assert narrow.high - narrow.low == pytest.approx(width * 0.6745 / 1.96, rel=0.15)


def test_differences_of_rates_are_newcombes():
    # Newcombe 1998, "Interval estimation for the difference between independent proportions", example (a), method 10.
    first, second = np.repeat([1.0, 0.0], [56, 14]), np.repeat([1.0, 0.0], [48, 32])
    gap = statistics.rate_difference(first, second, paired=False)
    assert (gap.low, gap.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    # Newcombe 1998, "Improved confidence intervals ... paired data", 36 / 12 / 2 / 0, method 10.
    first, second = np.repeat([1.0, 1.0, 0.0], [36, 12, 2]), np.repeat([1.0, 0.0, 1.0], [36, 12, 2])
    gap = statistics.rate_difference(first, second, paired=True)
    assert (gap.low, gap.high, gap.pairs) == pytest.approx((0.0569, 0.3404, 50), abs=5e-5)
    never = statistics.rate_difference(np.zeros(60), np.zeros(60), paired=True)
    assert never.low < 0 == never.value < never.high


def test_games_are_matched_where_half_are_shared():
    one, two = {1: 1.0, 2: 2.0, 3: 3.0}, {3: 30.0, 2: 20.0, 9: 90.0}
    first, second, paired = statistics.matched(one, two)
    assert (first.tolist(), second.tolist(), paired) == ([2, 3], [20, 30], True)
    first, second, paired = statistics.matched(one, {3: 30.0, 8: 80.0, 9: 90.0})
    assert (first.tolist(), second.tolist(), paired) == ([1, 2, 3], [30, 80, 90], False)
    assert statistics.matched(one, {})[2] is False
    assert statistics.matched(one, {3: 30.0, 9: 90.0})[2] is True


def test_games_are_the_same_whatever_is_observed_besides():
    plan = {"environment": "NetHackScore-v1", "options": {"max_episode_steps": 50}}
    rows = [{"seed": seed, "score": seed} for seed in range(3)]
    plain = games({"plan": plan, "rows": rows}, "score")
    read = dict.fromkeys("fields tokenizer prompt_tokens special_tokens text text_bytes".split(), 9)
    more = plan | {"options": {"max_episode_steps": 50, **read}}
    assert games({"plan": more, "rows": rows}, "score") == plain
    drawn = [plan | {"options": {"folder": run}, "drawn_from": {"folder": "0f"}} for run in "ab"]
    first, second = (games({"plan": one, "rows": rows}, "score") for one in drawn)
    assert first == second != plain
    longer = plan | {"options": {"max_episode_steps": 60}}
    assert not set(games({"plan": longer, "rows": rows}, "score")) & set(plain)
