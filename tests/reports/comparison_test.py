from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.reports import comparison_page
from motif_jax.reports.comparison import as_json, collect_scores, compare, learning_curve, normalise
from motif_jax.reports.comparison_page import ComparisonData
from motif_jax.support.curves import Curve
from motif_jax.support.errors import UserError


def entries(methods=("a", "b"), runs=4, tasks=("t1", "t2")):
    generator = np.random.default_rng(0)
    return [
        (method, task, float(10 * (m + 1) * (t + 1) + generator.normal()))
        for m, method in enumerate(methods)
        for t, task in enumerate(tasks)
        for _ in range(runs)
    ]


def test_scores_are_arranged_by_run_and_task():
    scores = collect_scores(entries(), "points")
    assert scores.tasks == ("t1", "t2")
    assert scores.by_method["a"].shape == (4, 2)
    assert abs(scores.by_method["b"][:, 1].mean() - 40) < 2
    with pytest.raises(UserError, match=r"config.methods: a needs equally many runs of every task"):
        collect_scores([*entries(), ("a", "t1", 3.0)], "")


def test_normalisation_sets_two_methods_to_0_and_1():
    scores = normalise(collect_scores(entries(("low", "high", "other")), ""), "low", "high")
    np.testing.assert_allclose(scores.by_method["low"].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scores.by_method["high"].mean(0), 1, atol=1e-12)
    assert (scores.by_method["other"].mean(0) > 1.5).all()
    with pytest.raises(UserError, match=r"config.normalise_zero='x': must be a method .*: low, high, other"):
        normalise(scores, "x", "high")
    with pytest.raises(UserError, match=r"config.normalise_one='x': must be a method"):
        normalise(scores, "low", "x")
    with pytest.raises(
        UserError, match=r"config.normalise_one='low': must have other means than normalise_zero='low'"
    ):
        normalise(scores, "low", "low")


def test_aggregates_improvement_and_profiles():
    scores = collect_scores(entries(tasks=("t1",)), "points")
    result = compare(scores, resamples=200)
    values = np.sort(scores.by_method["a"][:, 0])
    assert result.aggregates["interquartile mean"]["a"].value == pytest.approx(values[1:3].mean())
    assert result.aggregates["mean"]["a"].value == pytest.approx(values.mean())
    for of in result.aggregates.values():
        for estimate in of.values():
            assert estimate.low <= estimate.value <= estimate.high
    assert result.improvement["a", "b"].value == 0.0
    profile = {series.name: series for series in result.profiles}["a"]
    np.testing.assert_allclose(profile.y, [(values > x).mean() for x in profile.x])
    assert as_json(compare(scores, resamples=200)) == as_json(result), "repeatable"
    one = compare(collect_scores(entries(("only",), 3), ""), resamples=50)
    assert one.improvement == {}
    page = comparison_page.render(ComparisonData("t", one, "return"), "now")
    assert "only one method was given" in page


def test_what_is_said_of_the_method_is_what_was_done():
    result = compare(collect_scores(entries(), "points"), resamples=70)
    texts = [comparison_page.render(ComparisonData("t", result, "return"), "now")]
    texts += comparison_page.tables(ComparisonData("t", result, "return")).values()
    for text in texts:
        assert "70 resamples" in text
        assert "2,000" not in text
        assert "2000" not in text
    many = compare(collect_scores(entries(runs=2), "points"), resamples=600)
    page = comparison_page.render(ComparisonData("t", many, "return"), "now")
    profiles = page[page.index('id="profiles"') : page.index('id="tasks"')]
    assert "500 resamples" in profiles
    tasks = page[page.index('id="tasks"') :]
    assert "Percentile bootstrap over the runs of the task, 600 resamples" in tasks
    assert "rliable" not in tasks
    assert as_json(many)["profile_resamples"] == 500


def test_one_run_has_no_interval():
    several = entries(("several",), runs=3)
    result = compare(collect_scores([("one", "t1", 5.0), ("one", "t2", 7.0), *several], ""), resamples=50)
    data = ComparisonData("t", result, "return")
    _, rows = comparison_page.aggregate_table(result)
    assert rows[0][:2] == ("one", "1")
    assert all(cell.endswith(" [n/a]") for cell in rows[0][2:])
    assert not any("n/a" in cell for cell in rows[1])
    assert comparison_page.task_table(result)[1][0][1] == "5 [n/a]"
    assert comparison_page.improvement_table(result)[1][0][2].endswith("[n/a]")
    plain = as_json(result)
    assert plain["by_task"]["t1"]["one"] == {"value": 5.0, "low": None, "high": None}
    json.dumps(plain, allow_nan=False)
    assert {series.name: series.low is None for series in result.profiles} == {"one": True, "several": False}
    page = comparison_page.render(data, "now")
    assert "nan" not in page[page.index("<main>") : page.index("</main>")].lower()
    assert "One run has no interval (n/a): one." in page


def test_learning_curves_stop_with_the_shortest_run():
    x = np.arange(0, 1000, 10.0)
    seeds = [Curve(x, x), Curve(x[:50], x[:50] + 10)]
    line = learning_curve("m", seeds, points=10)
    assert line.name == "m (n = 2)"
    assert line.x.max() <= 490
    np.testing.assert_allclose(line.y, line.x, atol=25)
    assert (line.low <= line.y + 1e-9).all()
    assert (line.high >= line.y - 1e-9).all()
    assert learning_curve("m", seeds[:1]).low is None
