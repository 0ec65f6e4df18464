from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.reports import comparison_page, page
from motif_jax.reports.comparison import RunScore, as_json, collect_scores, compare, normalise
from motif_jax.reports.comparison_page import ComparisonData
from motif_jax.support.errors import UserError
from tests.recorded_outputs import compared


def entries(methods=("a", "b"), runs=4, tasks=("t1", "t2")):
    generator = np.random.default_rng(0)
    return [
        RunScore(method, task, float(10 * (m + 1) * (t + 1) + generator.normal()), {})
        for m, method in enumerate(methods)
        for t, task in enumerate(tasks)
        for _ in range(runs)
    ]


def shown(result):
    """Header and rows of each table of the page, by its id."""
    found = page.file_tables(comparison_page.sections(ComparisonData("t", result, "return")))
    return {table.name: (list(table.header), table.texts()) for _, table in found}


def rendered(result):
    data = ComparisonData("t", result, "return")
    return page.render(data.title, "motif_jax, written now", comparison_page.sections(data))


def test_scores_are_arranged_by_run_and_task():
    scores = collect_scores(entries(), "points")
    assert scores.tasks == ("t1", "t2")
    assert scores.by_method["a"].shape == (4, 2)
    assert abs(scores.by_method["b"][:, 1].mean() - 40) < 2
    with pytest.raises(UserError, match=r"config.methods: a must have the same number of runs of every task"):
        collect_scores([*entries(), RunScore("a", "t1", 3.0, {})], "")


def test_normalisation_sets_two_methods_to_0_and_1():
    scores = normalise(collect_scores(entries(("low", "high", "other")), ""), "low", "high")
    np.testing.assert_allclose(scores.by_method["low"].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scores.by_method["high"].mean(0), 1, atol=1e-12)
    assert (scores.by_method["other"].mean(0) > 1.5).all()
    refused = {
        ("x", "high"): "normalise_zero='x': must be a method .*: low, high, other",
        ("low", "x"): "normalise_one='x': must be a method",
        ("low", "low"): "normalise_one='low': must have other means than normalise_zero='low'",
    }
    for (zero, one), told in refused.items():
        with pytest.raises(UserError, match=f"config.{told}"):
            normalise(scores, zero, one)


def test_aggregates_improvement_and_profiles():
    scores = collect_scores(entries(tasks=("t1",)), "points")
    result = compare(scores, resamples=200)
    values = np.sort(scores.by_method["a"][:, 0])
    assert result.aggregates["interquartile mean"]["a"].value == pytest.approx(values[1:3].mean())
    assert all(e.low <= e.value <= e.high for of in result.aggregates.values() for e in of.values())
    assert result.improvement["a", "b"].value == 0.0
    profile = {series.name: series for series in result.profiles}["a"]
    np.testing.assert_allclose(profile.y, [(values > x).mean() for x in profile.x])
    assert as_json(compare(scores, resamples=200)) == as_json(result), "repeatable"
    one = compare(collect_scores(entries(("only",), 3), ""), resamples=50)
    assert one.improvement == {}
    assert "only one method was given" in rendered(one)
    assert "nothing was given to compare" in rendered(None)


def test_the_median_of_one_task_is_that_of_its_runs():
    runs = [RunScore("m", "t", score, {}) for score in (8.18, 7.19, 4.33)]
    result = compare(collect_scores(runs, ""), resamples=200)
    middle = result.aggregates["median"]["m"]
    assert (middle.value, middle.low, middle.high) == (7.19, 4.33, 8.18)
    assert result.aggregates["mean"]["m"].value == pytest.approx(6.5667, abs=1e-4)
    assert "interquartile mean" not in result.aggregates, "of three runs it would leave none out"
    sections = comparison_page.sections(ComparisonData("t", result, "return"))
    texts = page.texts("t", [], sections, "comparison")
    for text in texts.values():
        assert "7.19 [4.33, 8.18]" in text
        assert "No interquartile mean of fewer than 4 scores" in text
        assert "hold the true mean in 75 of 100 cases" in text
    tasks = [*runs, *(RunScore("m", "u", 10 * run.score, {}) for run in runs)]
    of_two = compare(collect_scores(tasks, ""), resamples=50)
    assert "median" not in of_two.aggregates
    assert of_two.aggregates["median of task means"]["m"].value == pytest.approx(6.5667 * 5.5, abs=1e-3)
    assert of_two.aggregates["interquartile mean"]["m"].value > 0
    mixed = compare(collect_scores([*runs, *(RunScore("n", "t", i, {}) for i in range(4))], ""), resamples=50)
    header, rows = shown(mixed)["aggregate-table"]
    assert rows[0][header.index("interquartile mean")] == "n/a"
    json.dumps(as_json(mixed), allow_nan=False)
    rendered(mixed)


@pytest.mark.slow
def test_the_same_games_tell_what_overlapping_intervals_do_not():
    generator = np.random.default_rng(3)
    luck = generator.gamma(1, 50, 40)  # a hard game is hard for both
    games = {"a": dict(enumerate(luck + 3 + generator.normal(0, 1, 40))), "b": dict(enumerate(luck))}
    runs = [RunScore(method, "t", float(np.mean(list(of.values()))), of) for method, of in games.items()]
    (contrast,) = compare(collect_scores(runs, ""), resamples=500).contrasts
    assert (contrast.over_games.pairs, contrast.over_games.sign) == (40, 1)
    assert contrast.over_games.value == pytest.approx(contrast.over_runs.value)
    assert np.isnan(contrast.over_runs.low), "one run says nothing of other trainings"
    elsewhere = {seed + 1000: value for seed, value in games["b"].items()}
    others = collect_scores([runs[0], runs[1]._replace(games=elsewhere)], "")
    (apart,) = compare(others, resamples=500).contrasts
    assert (apart.over_games.pairs, apart.over_games.sign) == (0, 0)
    scale = normalise(collect_scores(runs, ""), "b", "a")
    (scaled,) = compare(scale, resamples=500).contrasts
    assert scaled.over_games.value == pytest.approx(1.0)


def test_one_run_beside_several_has_no_interval(record):
    one = [RunScore("one", "t1", 5.0, {}), RunScore("one", "t2", 7.0, {})]
    result = compare(collect_scores([*one, *entries(("several",), runs=3)], ""), resamples=50)
    parts = {"page": rendered(result), "json": json.dumps(as_json(result), allow_nan=False)}
    compared("comparison_page", parts, record)
