from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.display import page
from motif_jax.display.charts import Series
from motif_jax.display.statistics import Difference, gap
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.reports import claims, comparison_page
from motif_jax.reports.comparison import RunScore, as_json, collect_scores, compare, normalise
from motif_jax.reports.comparison_page import ComparisonData

pytestmark = pytest.mark.slow


def entries(methods=("a", "b"), runs=4, tasks=("t1", "t2")):
    generator = np.random.default_rng(0)
    return [
        RunScore(method, task, float(10 * (m + 1) * (t + 1) + generator.normal()), {})
        for m, method in enumerate(methods)
        for t, task in enumerate(tasks)
        for _ in range(runs)
    ]


def rendered(result):
    data = ComparisonData("t", result, "return")
    return page.render(data.title, "motif_jax, written now", comparison_page.sections(data))


def test_normalisation_sets_two_methods_to_0_and_1():
    scores = normalise(collect_scores(entries(("low", "high", "other")), ""), "low", "high")

    np.testing.assert_allclose(scores.by_method["low"].mean(0), [0, 0], atol=1e-12)
    np.testing.assert_allclose(scores.by_method["high"].mean(0), [1, 1], atol=1e-12)


def test_a_method_with_more_runs_of_a_task_is_refused():
    with pytest.raises(
        UserError,
        match=r"^config\.methods: a must have the same number of runs of every task, it has",
    ):
        collect_scores([*entries(), RunScore("a", "t1", 3.0, {})], "")


@pytest.mark.parametrize(
    ("zero", "one", "message"),
    [
        ("x", "high", "normalise_zero='x': must be a method .*: low, high, other"),
        ("low", "x", "normalise_one='x': must be a method"),
        ("low", "low", "normalise_one='low': must have other means than normalise_zero='low'"),
    ],
)
def test_a_scale_needs_two_methods_that_differ(zero, one, message):
    scores = collect_scores(entries(("low", "high", "other")), "")

    with pytest.raises(UserError, match=f"config.{message}"):
        normalise(scores, zero, one)


FEW_RUNS = [RunScore("m", "t", score, {}) for score in (8.18, 7.19, 4.33)]


def texts_of(scores):
    result = scores and compare(scores, resamples=50)
    data = ComparisonData("t", result, "return")
    return page.markdown("t", [], comparison_page.sections(data))


def test_nothing_compared_is_a_page_too():
    assert rendered(None).rstrip().endswith("</html>")
    assert texts_of(None)


def test_every_statistic_has_a_chart_of_all_methods():
    result = compare(collect_scores(entries(), ""), resamples=50)

    sections = comparison_page.sections(ComparisonData("t", result, "return"))

    (aggregates,) = [section for section in sections if section.name == "aggregates"]
    _, *plots = aggregates.parts
    assert [plot.title for plot in plots] == list(result.aggregates)
    for plot in plots:
        estimates = result.aggregates[plot.title]
        intervals = [
            (interval.name, interval.value, interval.low, interval.high)
            for interval in plot.intervals
        ]
        assert intervals == [
            (f"{method} (n = 4)", estimate.value, estimate.low, estimate.high)
            for method, estimate in estimates.items()
        ]


def test_few_runs_have_a_median_and_no_interquartile_mean():
    alone = texts_of(collect_scores(FEW_RUNS, ""))
    other = [RunScore("m", "u", 10 * run.score, {}) for run in FEW_RUNS]
    tasks = texts_of(collect_scores([*FEW_RUNS, *other], ""))

    assert "| method | runs | mean | median |" in alone
    assert "| m | 3 | 6.57 [4.54, 8.18] | 7.19 [4.33, 8.18] |" in alone
    assert "| method | runs | interquartile mean | mean |" in tasks


def test_numbers_of_a_comparison_are_json_of_finite_ones():
    for scores in (collect_scores(FEW_RUNS, ""), collect_scores(entries(tasks=("t1",)), "points")):
        assert json.loads(json.dumps(as_json(compare(scores, resamples=50)), allow_nan=False))


def test_one_run_beside_several_has_no_interval():
    one = [RunScore("one", "t1", 5.0, {}), RunScore("one", "t2", 7.0, {})]

    result = compare(collect_scores([*one, *entries(("several",), runs=3)], ""), resamples=50)

    text = page.markdown("t", [], comparison_page.sections(ComparisonData("t", result, "return")))
    by_task = text.partition("## By task")[2].partition("## ")[0]
    header, _, *rows = [
        line.strip("| ").split(" | ") for line in by_task.splitlines() if line[:1] == "|"
    ]
    column = header.index("one")
    assert [row[column] for row in rows] == ["5 [n/a]", "7 [n/a]"]
    assert rendered(result).rstrip().endswith("</html>")


GAMES = {"low": {1: 1, 2: 4, 3: 2}, "high": {1: 3, 2: 5, 3: 2.5}, "mid": {1: 1, 2: 6, 9: 3}}


def test_claims_are_tested_on_the_games_that_both_played():
    evaluations = {
        name: {
            "plan": {"environment": "e"},
            "rows": [{"seed": seed, "kills": kills} for seed, kills in games.items()],
            "measures": [],
        }
        for name, games in GAMES.items()
    }
    stated = claims.parsed_claims(" high >low + 0.25:kills;; low > mid : kills", list(GAMES))

    result = claims.side_by_side(evaluations, ["kills"], stated, load_lexicon(), 50)

    first, second = result.as_json()["claims"]
    assert first["difference"]["value"] == pytest.approx((2 + 1 + 0.5) / 3)
    assert second["difference"]["value"] == pytest.approx((0 - 2) / 2)


@pytest.mark.parametrize(
    ("text", "less", "margin"),
    [
        ("a > b-2 - 0.1: success", "b-2", -0.1),
        ("a > b-2: success", "b-2", 0.0),
        ("a > b + 0.3: success", "b", 0.3),
    ],
)
def test_a_claims_margin_is_above_or_below_the_other_method(
    text: str, less: str, margin: float
) -> None:
    claim = claims.parsed_claims(text, ["a", "b", "b-2"])[0]

    assert (claim.less, claim.margin) == (less, margin)
    assert str(claim) == text


@pytest.mark.parametrize("key", ["success", "won"])
def test_rates_over_games_differ_with_newcombes_interval(key: str) -> None:
    wins = dict.fromkeys(range(40), 1.0)
    losses = dict.fromkeys(range(40), 0.0)
    played = [RunScore("able", "t", 1.0, wins), RunScore("unable", "t", 0.0, losses)]

    (contrast,) = compare(collect_scores(played, ""), resamples=50, key=key).contrasts

    assert contrast.over_games == gap(wins, losses, rate=True)
    assert contrast.over_games.low < 0.9


def test_scaled_games_of_0_and_1_are_no_rates() -> None:
    played = [RunScore("a", "t", 5.0, {1: 5.0, 2: 5.0}), RunScore("b", "t", 7.0, {1: 7.0, 2: 7.0})]
    scores = normalise(collect_scores(played, ""), "a", "b")

    (contrast,) = compare(scores, resamples=50, key="return").contrasts

    assert contrast.over_games == Difference(-1, -1, -1, pairs=2)


def test_curves_and_provenance_are_on_the_page_of_a_comparison():
    tasks = [("t1", 0.5), ("t2", 2.0)] * 2
    played = [
        RunScore(name, task, sum(games.values()) * by, games)
        for name, games in GAMES.items()
        for task, by in tasks
    ]
    scaled = compare(normalise(collect_scores(played, "points"), "low", "high"), resamples=50)
    line = Series(
        "high (n = 2)", np.arange(3.0), np.arange(3.0) ** 2, np.arange(3.0), np.arange(3.0) + 9
    )
    data = ComparisonData(
        "t",
        scaled,
        "kills",
        {"t1": [line, line._replace(name="theirs", dashed=True)]},
        "theirs.pkl",
        provenance=[("low: config.json", '{"seed": 1}')],
    )

    shown = page.render("t", "", comparison_page.sections(data))

    for text in ("high (n = 2)", "theirs.pkl", "low: config.json"):
        assert text in shown
    assert json.dumps(as_json(scaled), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "methods", "more", "less", "margin"),
    [
        ("lr=1e-4 > lr=1e+3: r", ["lr=1e-4", "lr=1e", "lr=1e+3"], "lr=1e-4", "lr=1e+3", 0.0),
        ("a > a+1: r", ["a", "a+1"], "a", "a+1", 0.0),
        ("a+1 > a + 1: r", ["a", "a+1"], "a+1", "a", 1.0),
        ("a+1 > a - 0.5: r", ["a", "a+1"], "a+1", "a", -0.5),
    ],
)
def test_a_name_may_end_as_a_margin_does(text, methods, more, less, margin):
    (claim,) = claims.parsed_claims(text, methods)

    assert (claim.more, claim.less, claim.measure, claim.margin) == (more, less, "r", margin)
