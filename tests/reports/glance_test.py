"""The sentence that stands first: result and warnings weighed together."""

from __future__ import annotations

import os
from dataclasses import asdict

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display import measures
from motif_jax.reports import evaluation_sections, hacking, run_report
from motif_jax.reports.glance import facts, headline
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_data


def evaluation(rows):
    summaries = measures.summarise_rows(rows, 200, 0.95)
    return {
        "plan": {"policy": "p", "environment": "e", "options": {}},
        "episodes": len(rows), "confidence": 0.95, "intervals": "bootstrap", "steps": 1, "steps_per_second": 1.0,
        "measures": {key: asdict(summary) for key, summary in summaries.items()},
        "rows": rows,
    }  # fmt: skip


def rows(rewards, depths, first_seed=0):
    return [
        {"index": i, "seed": first_seed + i, "intrinsic_return": float(r), "return": 0.0, "dlvl": float(d)}
        for i, (r, d) in enumerate(zip(rewards, depths, strict=True))
    ]


def test_more_reward_is_weighed_against_progress():
    generator = np.random.default_rng(0)
    luck, depth, more = generator.gamma(1, 50, 40), generator.normal(3, 0.1, 40), generator.normal(2, 1, 40)
    data = RunData("t")
    verdicts = (
        (0.5, "good", "Progress rises too: dungeon level 3.03 to 3.53 from random to agent."),
        (0.0, "", "No measure of progress rises clearly."),
        (-0.5, "bad", "the reward may be hacked: dungeon level falls from random to agent."),
    )
    for deeper, kind, progress in verdicts:
        agent, baseline = evaluation(rows(luck + more, depth + deeper)), evaluation(rows(luck, depth))
        data.evaluations = {"agent": agent, "random": baseline}
        reverse = RunData("t", evaluations={"random": baseline, "agent": agent})
        text, found = headline(data)
        assert (found, headline(reverse)[1]) == (kind, "bad")
        assert text.endswith(progress)
        assert "over 40 games that both played): agent collects more." in text
        assert headline(reverse)[0].endswith(": random collects LESS.")
        assert run_report.as_json(data)["headline"] == {"text": text, "kind": kind}
    # The same numbers, of other games: their intervals overlap far.
    data.evaluations["random"] = evaluation(rows(luck, depth, first_seed=1000))
    text, kind = headline(data)
    assert kind == ""
    assert text.endswith("(95 % interval, each over its own games): no clear difference.")


def test_a_warning_names_the_progress_that_rises_too():
    generator = np.random.default_rng(0)
    played = {
        name: rows(generator.normal(more, 1, 40), np.full(40, 3 - more / 9))
        for name, more in (("agent", 9), ("random", 0))
    }
    for name, kills in (("agent", 5.0), ("random", 1.0)):
        for row in played[name]:
            row["kills"] = kills + row["index"] % 2
    text, kind = headline(RunData("t", evaluations={name: evaluation(of) for name, of in played.items()}))
    assert kind == "bad"
    assert "progress in part only" in text
    assert text.endswith("dungeon level falls from random to agent, while kills 1.50 to 5.50 rises.")


def test_rewards_that_differ_are_named_and_not_compared():
    generator = np.random.default_rng(0)
    data = RunData("t")
    data.evaluations = {
        name: evaluation(rows(generator.gamma(1, 50, 40) + more, np.ones(40)))
        for name, more in (("agent", 90), ("random", 0))
    }
    for name, step in (("agent", 1144), ("random", 2160)):
        data.evaluations[name]["plan"]["reward"] = {"dir": "runs/oni", "step": step, "quantile": 0.5}
    told = "agent and random were rated by different rewards (step 1144 and 2160)"
    text, kind = headline(data)
    assert (text.startswith(told), kind) == (True, "")
    assert told in evaluation_sections.evaluation_section(data).note
    against = {row.what.key: row.against for row in evaluation_sections.rows_of(data)}
    assert against["intrinsic_return"] == {} != against["dlvl"]
    [verdict] = hacking.judge_run(data)
    told = "random and agent were rated by different rewards (step 2160 and 1144)"
    assert verdict.line == f"Not checked for reward hacking: {told}."
    # One place by two names is one reward.
    data.evaluations["random"]["plan"]["reward"] |= {"dir": os.path.abspath("runs/oni"), "step": 1144}
    assert "agent collects more" in headline(data)[0]


def test_a_warning_of_the_training_is_in_the_headline(tmp_path):
    data = run_data(tmp_path, hacking=True)
    assert headline(data)[1] == "bad"
    data.evaluations = {}
    text, kind = headline(data)
    assert (kind, "nothing can be said yet" in text, "may be hacked" in text) == ("bad", True, True)


def test_an_accuracy_over_no_pairs_is_no_number():
    data = RunData("t")
    data.reward_summary = {"validation/accuracy": None, "validation/accuracy_pairs": 0}
    assert facts(data) == []
    data.reward_summary = {"validation/accuracy": 0.5, "validation/accuracy_pairs": 2}
    assert facts(data) == [("validation accuracy", "50.0 %", "2 pairs without ties")]
    data.reward_summary, data.reward_validation = {}, {"validation_accs": np.array([0.5, np.nan])}
    assert facts(data) == []
    data.reward_validation = {"validation_accs": np.array([0.5, 0.755])}
    assert facts(data) == [("validation accuracy", "75.5 %", "pairs without ties, after 1 epochs")]


def test_the_held_out_loss_is_the_newest_beside_the_best():
    curve = Curve(np.arange(0, 4000, 1000), np.array([3.0, 1.5, 1.75, np.nan]))
    data = RunData("t", text={"validation/loss": curve}, metrics={"a": curve})
    told = ("held-out loss", "1.75", "at step 2,000; best 1.5 at step 1,000")
    assert facts(data) == [("training steps", "3k", "steps of the environments"), told]
