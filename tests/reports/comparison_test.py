from __future__ import annotations

import numpy as np
import pytest

from motif_jax.reports import comparison_page
from motif_jax.reports.comparison import as_json, collect_scores, compare, learning_curve, normalise
from motif_jax.reports.comparison_page import ComparisonData
from motif_jax.reports.curves import Curve
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
    with pytest.raises(UserError, match="equally many runs of every task"):
        collect_scores([*entries(), ("a", "t1", 3.0)], "")


def test_normalisation_sets_two_methods_to_0_and_1():
    scores = normalise(collect_scores(entries(("low", "high", "other")), ""), "low", "high")
    np.testing.assert_allclose(scores.by_method["low"].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scores.by_method["high"].mean(0), 1, atol=1e-12)
    assert (scores.by_method["other"].mean(0) > 1.5).all()
    with pytest.raises(UserError, match="no method 'x'"):
        normalise(scores, "x", "high")
    with pytest.raises(UserError, match="equal means"):
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
