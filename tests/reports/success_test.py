from __future__ import annotations

from dataclasses import replace

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.reports import hacking, success, text_section
from motif_jax.reports.glance import headline
from motif_jax.reports.learned_reward import LabelLogReport
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_page, run_texts
from tests.reports.glance_test import evaluation as evaluation_of

COUNT = 400


def evaluation(share, environment="BabyAI-GoToLocal-v0"):
    rows = [{"index": i, "seed": i, "length": 9, "end_reason": "end"} for i in range(COUNT)]
    found = evaluation_of(
        [row | dict.fromkeys(("return", "success"), float(row["seed"] < share * COUNT)) for row in rows]
    )
    found["plan"]["environment"] = environment
    return found


def played(shares, text_task=False):
    """Runs of these shares, beside an expert that is a yardstick."""
    each = zip(("agent", "before training", "random", "expert"), (*shares, 1.0), strict=True)
    data = RunData("t", evaluations={name: evaluation(share) for name, share in each}, yardsticks=["expert"])
    for one in data.evaluations.values() if text_task else ():
        one["plan"] |= {"environment": "wordle", "decode": None}
    return data


def against_blind(shares, lead):
    names = ("agent", "fixed shares", "with another episode's prompts", "before training")
    found = {name: evaluation(share) for name, share in zip(names, shares, strict=True)}
    found["fixed shares"]["plan"]["policy"] = "fixed"
    found["with another episode's prompts"]["plan"]["options"] = {"change": "other_episode"}
    return RunData("t", evaluations=found, lead=lead)


SHARES = {
    (0.6, 0.3, 0.33): "good",
    (0.6, 0.3, 0.6): "",  # above one, not above the other
    (0.5, 0.3, 0.7): "",  # above one, below the other
    (0.3, 0.6, 0.3): "bad",
}
LEADS = {
    ((0.7, 0.5, 0.54, 0.65), 0.15): "good",
    ((0.7, 0.5, 0.6, 0.65), 0.15): "with another episode's prompts.",
    ((0.7, 0.56, 0.5, 0.65), 0.15): "fixed shares.",
    # More than that ahead of both, but intervals overlap.
    ((0.58, 0.52, 0.4, 0.5), 0.05): "fixed shares.",
}


def test_the_first_leads_where_it_is_clearly_better_than_all_others():
    for text_task in (False, True):
        for shares, kind in SHARES.items():
            text, found = headline(played(shares, text_task))
            assert found == kind, shares
            assert "uccess rate" in text


def test_the_first_must_lead_those_that_do_not_see_by_enough():
    for (shares, lead), close in LEADS.items():
        text, found = headline(against_blind(shares, lead))
        assert (found == "good") == (close == "good")
        assert text.partition("ahead, with intervals apart, of ")[2] == close.removeprefix("good")


def test_return_is_shown_against_divergence():
    found = {}
    for name, weight, share in (("a", 4.0, 0.5), ("b", 1.0, 0.75), ("c", 2.0, 0.25)):
        found[name] = evaluation(share, "wordle")
        decode = {"kind": "sample", "advantage_clip": 0.5 if name == "c" else None, "advantages": True}
        found[name]["plan"]["decode"] = decode | {"advantage_weight": weight}
        found[name]["measures"]["divergence"] = {"mean": {"value": weight / 8}}
    data = RunData("t", evaluations=found)
    [plot, table] = text_section.divergence_section(data).parts
    assert [row[1:3] for row in table.texts()] == [("1", "0.125"), ("4", "0.500"), ("2", "0.250")]

    found["a"]["plan"]["decode"] = None
    [plot, table] = text_section.divergence_section(data).parts
    assert [line.name for line in plot.lines] == ["p, sample", "p, sample, clip 0.5"]
    assert [row[1:3] for row in table.texts()] == [("1", "0.125"), ("2", "0.250")]
    del found["b"]["measures"]["divergence"], found["c"]["plan"]["decode"]
    assert text_section.divergence_section(data) is None


def test_an_earlier_checkpoint_is_compared_by_return():
    found = {"agent": evaluation(0.9), "before": evaluation(0.9), "random": evaluation(0.3)}
    for name, checkpoint in (("agent", 500), ("before", 0)):
        found[name]["plan"] |= {"policy": "runs/agent", "checkpoint": checkpoint}
    data = RunData("t", evaluations=found)
    assert headline(data)[1] == ""
    for row in found["before"]["rows"]:
        row["return"] *= 0.9
    text, kind = headline(data)
    assert kind == "good"
    assert "mean return minus that before 0.09 [" in text
    assert "agent does better than before and random" in text


def test_what_a_run_without_another_reward_has_no_part_in_is_left_out():
    games = {name: evaluation(share) for name, share in (("agent", 0.6), ("random", 0.3))}
    data = RunData("t", evaluations=games)
    assert success.task_alone(data)
    shown = run_page(data) + run_texts(data)["report.md"]
    for absent in ("Reward against progress", "Reward training", "what paid most", "reward hacking"):
        assert absent not in shown
    games["agent"]["plan"]["reward"] = {"dir": "runs/reward"}
    assert not success.task_alone(data)
    assert "Reward against progress" in run_page(data)
    curve = Curve(np.arange(3.0), np.arange(3.0))
    alone = RunData("t", episodes={"return": curve})
    assert headline(alone) == ("Nothing can be said yet: no two evaluations were given.", "")
    learned = {"reward_train": {"a": curve}, "dataset": {"pairs": "1"}, "reward_reads": ("glyphs",)}
    learned |= {"learned": LabelLogReport(""), "episodes": {"intrinsic_return": curve}}
    assert not any(success.task_alone(replace(alone, **{name: of})) for name, of in learned.items())
    known = [
        RunData("t"),
        *(RunData("t", **{name: {"a": curve}}) for name in ("metrics", "text", "language")),
    ]
    assert [success.task_alone(data) for data in known] == [False, True, True, False]
    read = replace(alone, reward_reads=("glyphs",))
    assert [hacking.judge_run(data)[0].line[:60] for data in (read, alone, RunData("t"))] == [
        "The training is not checked for reward hacking: a reward tha",
        *["Not checked for reward hacking: no intrinsic return was reco"] * 2,
    ]
