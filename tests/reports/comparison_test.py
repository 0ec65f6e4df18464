from __future__ import annotations

import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.motif.annotation.lexicon import load_lexicon
from motif_jax.play import messages
from motif_jax.play.messages import MessageTally
from motif_jax.reports import claims, comparison_page, page
from motif_jax.reports.charts import Series
from motif_jax.reports.comparison import RunScore, as_json, collect_scores, compare, normalise
from motif_jax.reports.comparison_page import ComparisonData
from tests.recorded_outputs import assert_matches_packed_recording


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
    means = [scores.by_method[name].mean(0) for name in ("low", "high")]
    np.testing.assert_allclose(means, [[0, 0], [1, 1]], atol=1e-12)
    with pytest.raises(
        UserError, match=r"^config\.methods: a must have the same number of runs of every task, it has"
    ):
        collect_scores([*entries(), RunScore("a", "t1", 3.0, {})], "")
    refused = {
        ("x", "high"): "normalise_zero='x': must be a method .*: low, high, other",
        ("low", "x"): "normalise_one='x': must be a method",
        ("low", "low"): "normalise_one='low': must have other means than normalise_zero='low'",
    }
    for (zero, one), told in refused.items():
        with pytest.raises(UserError, match=f"config.{told}"):
            normalise(scores, zero, one)


def test_no_statistic_is_shown_of_too_few_scores(record):
    runs = [RunScore("m", "t", score, {}) for score in (8.18, 7.19, 4.33)]
    every = {
        "none": None,
        "single": collect_scores(entries(("only",), 3, tasks=("t1",)), ""),
        "median of the runs": collect_scores(runs, ""),
        "tasks": collect_scores([*runs, *(RunScore("m", "u", 10 * run.score, {}) for run in runs)], ""),
        "mixed": collect_scores([*runs, *(RunScore("n", "t", i, {}) for i in range(4))], ""),
        "plain": collect_scores(entries(tasks=("t1",)), "points"),
    }
    told = {}
    for name, scores in every.items():
        data = ComparisonData("t", scores and compare(scores, resamples=50), "return")
        told[name] = "".join(page.texts("t", [], comparison_page.sections(data), "comparison").values())
        told[name] += json.dumps(as_json(data.comparison), allow_nan=False) if scores else rendered(None)
    assert_matches_packed_recording("comparison_texts", told, record)


def test_one_run_beside_several_has_no_interval(record):
    one = [RunScore("one", "t1", 5.0, {}), RunScore("one", "t2", 7.0, {})]
    result = compare(collect_scores([*one, *entries(("several",), runs=3)], ""), resamples=50)
    parts = {"page": rendered(result), "json": json.dumps(as_json(result), allow_nan=False)}
    games = {"low": {1: 1, 2: 4, 3: 2}, "high": {1: 3, 2: 5, 3: 2.5}, "mid": {1: 1, 2: 6, 9: 3}}
    tasks = [("t1", 0.5), ("t2", 2.0)] * 2
    played = [
        RunScore(name, task, sum(of.values()) * by, of) for name, of in games.items() for task, by in tasks
    ]
    scaled = compare(normalise(collect_scores(played, "points"), "low", "high"), resamples=50)
    rows = {name: [{"seed": seed, "kills": won} for seed, won in of.items()] for name, of in games.items()}
    said = {"You kill the newt!": 2, "You miss the newt.  You hit it!": 3, "$ - 50 gold pieces.": 2}
    said |= {"$ - a gold piece.": 4, "$ - 51 gold pieces.": 1}
    packed = [messages.pack([MessageTally(text, count) for text, count in of]) for of in ((), said.items())]
    for at, row in enumerate(row for of in rows.values() for row in of):
        row["messages"] = packed[at % 2]
    claimed = claims.parsed_claims(" high >low + 0.25:kills;; low > mid : kills", list(games))
    evaluations = {
        name: {"plan": {"environment": "e"}, "rows": of, "measures": []} for name, of in rows.items()
    }
    told = claims.side_by_side(
        evaluations, ["kills", "fights", "finds", "gathered"], claimed, load_lexicon(), 50
    )
    line = Series("high (n = 2)", np.arange(3.0), np.arange(3.0) ** 2, np.arange(3.0), np.arange(3.0) + 9)
    data = ComparisonData(
        "t",
        scaled,
        "kills",
        {"t1": [line, line._replace(name="theirs", dashed=True)]},
        "theirs.pkl",
        claims=told,
        provenance=[("low: config.json", '{"seed": 1}')],
    )
    parts |= {
        "all": page.render("t", "", comparison_page.sections(data)),
        "scaled": json.dumps(as_json(scaled), allow_nan=False),
    }
    assert_matches_packed_recording("comparison_page", parts | {"claims": json.dumps(told.as_json())}, record)
