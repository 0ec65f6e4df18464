"""The verdict on success rates."""

from __future__ import annotations

import pytest

from motif_jax.reports import success
from motif_jax.reports.glance import headline
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


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        ((0.6, 0.3, 0.33), "good"),
        ((0.6, 0.3, 0.6), ""),  # above one, not above the other
        ((0.5, 0.3, 0.7), ""),  # above one, below the other
        ((0.3, 0.6, 0.3), "bad"),
    ],
)
@pytest.mark.parametrize("text_task", [False, True])
def test_the_first_leads_where_it_is_clearly_better_than_all_others(shares, kind, text_task):
    names = ("agent", "before training", "random", "expert")
    each = zip(names, (*shares, 1.0), strict=True)
    data = RunData("t", evaluations={name: evaluation(share) for name, share in each}, yardsticks=["expert"])
    if text_task:
        for one in data.evaluations.values():
            one["plan"] |= {"environment": "wordle", "decode": None}
    text, found = headline(data)
    assert found == kind
    assert f"{shares[0]:.2f}".lstrip("0").rstrip("0") in text


@pytest.mark.parametrize(
    ("shares", "lead", "close"),
    [
        ((0.7, 0.5, 0.54, 0.65), 0.15, []),
        ((0.7, 0.5, 0.6, 0.65), 0.15, ["with another episode's prompts"]),
        ((0.7, 0.56, 0.5, 0.65), 0.15, ["fixed shares"]),
        # More than that ahead of both, but intervals overlap.
        ((0.58, 0.52, 0.4, 0.5), 0.05, ["fixed shares"]),
    ],
)
def test_the_lead_over_what_does_not_read(shares, lead, close):
    names = ("agent", "fixed shares", "with another episode's prompts", "before training")
    found = {name: evaluation(share) for name, share in zip(names, shares, strict=True)}
    found["fixed shares"]["plan"]["policy"] = "fixed"
    found["with another episode's prompts"]["plan"]["options"] = {"change": "other_episode"}
    text, kind = headline(RunData("t", evaluations=found, lead=lead))
    assert kind == ("" if close else "good")
    assert ("ahead, with intervals apart, of " in text) == bool(close)
    for name in close:
        assert text.rsplit("intervals apart, of ", 1)[1].startswith(name)


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


def test_other_games_are_not_judged_by_success():
    games = {name: evaluation(0.5, "NetHackScore-v1") for name in ("agent", "random")}
    data = RunData("t", evaluations=games)
    assert success.rates(data) == {}
    assert headline(data)[0].startswith("Mean success rate (share): agent 0.500")


def test_what_a_run_without_another_reward_has_no_part_in_is_left_out():
    games = {name: evaluation(share) for name, share in (("agent", 0.6), ("random", 0.3))}
    data = RunData("t", evaluations=games)
    assert success.task_alone(data)
    page, tables = run_page(data), run_texts(data)["report.md"]
    for absent in ("Reward against progress", "Reward training", "what paid most", "reward hacking"):
        assert absent not in page + tables
    games["agent"]["plan"]["reward"] = {"dir": "runs/reward"}
    assert not success.task_alone(data)
    assert "Reward against progress" in run_page(data)
