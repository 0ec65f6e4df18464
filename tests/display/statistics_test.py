from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from motif_jax.core.files import finite
from motif_jax.display import statistics
from motif_jax.play import evaluation_files
from motif_jax.play.evaluation_files import games


@pytest.fixture
def values() -> np.ndarray:
    """Eight values, one of them far outside."""
    return np.array([0.0, 1.0, 2.0, 3.0, 100.0, 4.0, 5.0, 6.0])


def test_means_and_medians_of_values(values):
    summary = statistics.summarise(values, resamples=500)

    assert (summary.n, summary.minimum, summary.maximum) == (8, 0, 100)
    assert (summary.mean.value, summary.median.value, summary.iqm.value) == (15.125, 3.5, 3.5)
    assert summary.std == pytest.approx(np.std(values))


def test_intervals_hold_the_middle_of_the_draws(values):
    summary = statistics.summarise(values, resamples=500)

    assert (summary.mean.low, summary.mean.high) == pytest.approx((2.059375, 39.875))
    assert (summary.median.low, summary.median.high) == pytest.approx((1.5, 6))
    assert (summary.iqm.low, summary.iqm.high) == pytest.approx((1.5, 28.75))


def test_less_confidence_has_a_narrower_interval_of_a_mean(values):
    iqm = statistics.summarise(values, resamples=500, confidence=0.5).iqm

    assert (iqm.low, iqm.high) == (2.75, 4.25)


def test_a_large_table_is_resampled_in_parts(values, monkeypatch):
    summary = statistics.summarise(values, resamples=500)
    monkeypatch.setattr(statistics, "RESAMPLED_VALUES", 20)

    assert statistics.summarise(values, resamples=500) == summary


def test_equal_values_have_an_interval_without_width():
    mean = statistics.summarise(np.full(5, 2.0)).mean

    assert (mean.low, mean.value, mean.high, mean.sign) == (2, 2, 2, 1)


def test_the_middle_of_draws_lies_between_percentiles():
    assert statistics.percentile_interval(np.arange(101.0), 0.9) == pytest.approx((5, 95))


def test_an_interquartile_mean_leaves_out_a_quarter_at_either_end():
    rows = np.array([[1.0, 2, 3, 4, 50], [5, 4, 3, 2, -1]])

    assert statistics.interquartile_mean(rows).tolist() == [3, 3]


@pytest.mark.parametrize("values", [[], [1.0, np.nan]])
def test_nothing_and_what_is_not_finite_have_no_mean(values):
    with pytest.raises(ValueError, match="needs finite ones"):
        statistics.mean_of(values)


def test_a_better_episode_is_counted_with_ties_as_half():
    chance = statistics.probability_of_improvement(np.array([1.0, 2.0]), np.array([0.0, 1.0, 3.0]))

    assert chance == 3.5 / 6


def test_differences_of_rates_of_other_games_are_newcombes():
    """Newcombe 1998, "Interval estimation for the difference between independent proportions",
    example (a), method 10.
    """
    first = np.repeat([1.0, 0.0], [56, 14])
    second = np.repeat([1.0, 0.0], [48, 32])

    gap = statistics.rate_difference(first, second, paired=False)

    assert (gap.low, gap.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_differences_of_rates_of_pairs_are_newcombes():
    """Newcombe 1998, "Improved confidence intervals ... paired data", 36 / 12 / 2 / 0, method
    10.
    """
    first = np.repeat([1.0, 1.0, 0.0], [36, 12, 2])
    second = np.repeat([1.0, 0.0, 1.0], [36, 12, 2])

    gap = statistics.rate_difference(first, second, paired=True)

    assert (gap.low, gap.high, gap.pairs) == pytest.approx((0.0569, 0.3404, 50), abs=5e-5)


def test_a_positive_correlation_of_pairs_is_corrected_for_continuity():
    """18 / 12 / 2 / 18, method 10 by hand: phi is (18 * 18 - 12 * 2 - 50 / 2) / sqrt(30 * 20 * 20 *
    30), and Wilson's limits are 0.46180 and 0.72392, 0.27612 and 0.53820.
    """
    first = np.repeat([1.0, 1.0, 0.0, 0.0], [18, 12, 2, 18])
    second = np.repeat([1.0, 0.0, 1.0, 0.0], [18, 12, 2, 18])

    gap = statistics.rate_difference(first, second, paired=True)

    phi = (18 * 18 - 12 * 2 - 50 / 2) / np.sqrt(30 * 20 * 20 * 30)
    below, above = 0.6 - 0.46180, 0.72392 - 0.6
    other_below, other_above = 0.4 - 0.27612, 0.53820 - 0.4
    low = 0.2 - np.sqrt(below**2 - 2 * phi * below * other_above + other_above**2)
    high = 0.2 + np.sqrt(above**2 - 2 * phi * above * other_below + other_below**2)
    assert (gap.low, gap.high) == pytest.approx((low, high), abs=5e-5)


def test_what_neither_side_did_has_a_difference_with_a_width():
    never = statistics.rate_difference(np.zeros(60), np.zeros(60), paired=True)

    assert never.low < 0 == never.value < never.high


FIRST = np.array([3.0, 5.0, 9.0, 2.0])
SECOND = np.array([1.0, 7.0, 2.0, 2.0])
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
    paired = statistics.difference(FIRST, SECOND, True, 200)
    apart = statistics.difference(FIRST, SECOND, False, 200)

    assert (paired.value, paired.pairs) == ((2 - 2 + 7 + 0) / 4, 4)
    assert (apart.value, apart.pairs) == (1.75, 0)
    assert paired.low < paired.value < paired.high


def test_one_game_says_nothing_of_others():
    difference = statistics.difference(np.array([3.0]), np.array([2.0]), True)

    assert difference.value == 1.0
    assert difference.sign == 0
    assert np.isnan([difference.low, difference.high]).all()


def test_less_confidence_has_a_narrower_interval():
    wide, narrow = (
        statistics.difference(FIRST, SECOND, False, 200, confidence) for confidence in (0.95, 0.8)
    )

    assert wide.low < narrow.low < narrow.high < wide.high


def test_means_of_many_values_are_drawn_as_normal_ones():
    """More than 20,000 of them, half 1 and half 4: the interval is 1.96 deviations of a difference
    of means.
    """
    values = np.tile([1.0, 4.0], 10_001), np.tile([1.0, 4.0], 10_000)
    deviation = np.sqrt(sum(one.var() / one.size for one in values))

    difference = statistics.difference(*values, False, 2000)

    assert difference.value == pytest.approx(0)
    assert (difference.low, difference.high) == pytest.approx(
        (-1.96 * deviation, 1.96 * deviation), rel=0.2
    )


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


def difference_of_means(x, y, axis):
    return np.mean(x, axis) - np.mean(y, axis)


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_is_scipys_bootstrap(paired):
    from scipy.stats import bootstrap as scipys

    generator = np.random.default_rng(4)
    base = generator.gamma(2, 20, 80)
    better = base + generator.gamma(1, 3, 80)
    if paired:
        data = (better - base,)
        gap = np.mean
    else:
        base = base[:60]
        data = (better, base)
        gap = difference_of_means
    theirs = scipys(data, gap, method="percentile", n_resamples=4000, rng=0).confidence_interval
    ours = statistics.difference(better, base, paired, resamples=4000)
    width = theirs.high - theirs.low
    assert ours.value == pytest.approx(better.mean() - base.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.1 * width)
    # The same difference is clear by games that both played, and not by others.
    assert (ours.pairs, ours.sign) == ((80, 1) if paired else (0, 0))
    narrow = statistics.difference(better, base, paired, resamples=4000, confidence=0.5)
    assert narrow.high - narrow.low == pytest.approx(width * 0.6745 / 1.96, rel=0.15)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(
            {3: 30.0, 2: 20.0, 9: 90.0}, ([2, 3], [20, 30], True), id="half and more are shared"
        ),
        pytest.param(
            {3: 30.0, 8: 80.0, 9: 90.0}, ([1, 2, 3], [30, 80, 90], False), id="less than half"
        ),
        pytest.param({}, ([1, 2, 3], [], False), id="no games"),
        pytest.param({3: 30.0, 9: 90.0}, ([3], [30], True), id="half of the smaller side"),
    ],
)
def test_games_are_matched_where_half_are_shared(other, expected):
    first, second, paired = statistics.matched({1: 1.0, 2: 2.0, 3: 3.0}, other)

    assert (first.tolist(), second.tolist(), paired) == expected


ROWS = [{"seed": seed, "score": seed} for seed in range(3)]


PLAN = {"environment": "NetHackScore-v1", "options": {"max_episode_steps": 50}}


def games_of(**options):
    plan = PLAN | {"options": PLAN["options"] | options}
    return games({"plan": plan, "rows": ROWS}, "score")


def test_games_are_the_same_whatever_is_observed_besides():
    observed = ("fields", "tokenizer", "prompt_tokens", "special_tokens", "text", "text_bytes")

    assert games_of(**dict.fromkeys(observed, 9)) == games_of()


def test_switches_of_what_is_shown_make_no_other_games():
    shown = {
        "crop_row_offset": True,
        "message_count_off": True,
        "timeout_as_terminal": True,
        "seed_noop": False,
    }
    assert games_of(compat=shown, last_text=True) == games_of()
    assert not set(games_of(compat={**shown, "seed_noop": True})) & set(games_of())


def test_options_that_are_empty_make_no_other_games():
    assert games_of(modules="", wrappers="") == games_of()


def test_games_with_other_limits_are_other_games():
    assert not set(games_of(max_episode_steps=60)) & set(games_of())


def test_equal_sources_draw_equal_games():
    plans = [PLAN | {"options": {"folder": run}, "drawn_from": {"folder": "0f"}} for run in "ab"]

    first, second = (games({"plan": plan, "rows": ROWS}, "score") for plan in plans)

    assert first == second
    assert first != games_of()


def test_one_value_has_no_interval():
    summary = statistics.summarise(np.array([3.7]))

    assert (summary.mean.value, summary.median.value, summary.iqm.value) == (3.7, 3.7, 3.7)
    assert np.isnan([summary.mean.low, summary.mean.high, summary.iqm.low]).all()
    read_again = statistics.Summary.from_dict(json.loads(json.dumps(finite(asdict(summary)))))
    assert np.isnan(read_again.mean.low)
    assert read_again.minimum == 3.7


def rated(folder, digest, **changes):
    reward = {"kind": "motif", "dir": folder, "step": 1, **changes}
    return {"plan": {"reward": reward, "digests": {"reward": digest}}}


@pytest.mark.parametrize(
    ("first", "second", "differences"),
    [
        # Trained again in its folder, and moved.
        (
            rated("runs/a", "d1"),
            rated("runs/a", "d2"),
            "dir runs/a and runs/a, of different contents",
        ),
        (rated("runs/a", "d1"), rated("moved/a", "d1"), ""),
        (rated("runs/a", "d1"), rated("runs/a", "d1", step=2), "step 1 and 2"),
        (
            rated(None, "d1", kind="table", table="labels.json"),
            rated(None, "d1", kind="table", table="/moved/labels.json"),
            "",
        ),
        (
            rated(None, "d1", kind="table", table="labels.json"),
            rated(None, "d2", kind="table", table="labels.json"),
            "table labels.json and labels.json, of different contents",
        ),
        # Without a digest the folder counts.
        (rated("runs/a", None), rated("runs/b", "d1"), "dir runs/a and runs/b"),
        (rated("runs/a", None), rated("./runs/a", None), ""),
    ],
)
def test_rewards_are_compared_by_their_contents(first, second, differences):
    assert evaluation_files.reward_differences(first, second) == differences
