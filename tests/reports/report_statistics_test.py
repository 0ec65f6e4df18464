from __future__ import annotations

import numpy as np
import pytest

from motif_jax.play.evaluation_files import games
from motif_jax.reports import statistics
from tests.recorded_outputs import assert_matches_packed_recording


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


def test_differences_are_what_they_were(record):
    a, b = np.array([3.0, 5.0, 9.0, 2.0]), np.array([1.0, 7.0, 2.0, 2.0])
    ones, rate, flipped = np.ones(5), np.array([1.0, 1.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    found = [
        *(statistics.mean_of(shares, rate=True, confidence=0.9) for shares in (np.zeros(20), rate, ones)),
        statistics.difference([(a, b, True)], 200),
        statistics.difference([(a, b, False)], 200, 0.8, seed=5),
        statistics.difference([(a, b, True), (b, a[:3], False)], 200),
        # The mean of more values than 20,000 is drawn as a normal one.
        statistics.difference([(np.tile([1.0, 4.0], 10_001), np.tile([1.0, 4.0], 10_000), False)], 200),
        *(
            statistics.rate_difference(one, two, True)
            for one in (ones, rate)
            for two in (flipped, 1 - flipped)
        ),
        *(
            statistics.rate_difference(one, two[:4], False, 0.9)
            for one in (ones, rate)
            for two in (flipped, 1 - flipped)
        ),
        statistics.gap({1: 1.0, 2: 0.0, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 1.0}, True),
        statistics.gap({1: 1.0, 2: 0.5, 3: 4.0}, {1: 0.0, 2: 0.0, 9: 1.0}, False, 50, 0.5),
    ]
    assert_matches_packed_recording("differences", {"found": "\n".join(map(str, found))}, record)


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
