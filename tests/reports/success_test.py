"""Verdicts on runs whose task rewards success alone, and the page of such a run."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display.measures import summarise_rows
from motif_jax.reports import evaluation_sections, hacking
from motif_jax.reports import headline as headlines
from motif_jax.reports.headline import headline
from motif_jax.reports.learned_reward import LabelLogReport
from motif_jax.reports.report import facts
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_markdown, run_page
from tests.reports.headline_test import evaluation as evaluation_of

pytestmark = pytest.mark.slow

EPISODES = 400
CURVE = Curve(np.arange(3.0), np.arange(3.0))


def evaluation(share: float, environment: str = "BabyAI-GoToLocal-v0") -> dict[str, Any]:
    """An evaluation whose first `share` of episodes succeeds."""
    rows = []
    for seed in range(EPISODES):
        solved = float(seed < share * EPISODES)
        rows.append(
            {
                "index": seed,
                "seed": seed,
                "length": 9,
                "end_reason": "end",
                "return": solved,
                "success": solved,
            }
        )
    summary = evaluation_of(rows)
    summary["plan"]["environment"] = environment
    return summary


def with_expert(shares: tuple[float, ...], text_task: bool) -> RunData:
    """An agent of the first share and players of the others, beside an expert that is a
    yardstick.
    """
    names = ("agent", "before training", "random", "expert")
    evaluations = {
        name: evaluation(share) for name, share in zip(names, (*shares, 1.0), strict=True)
    }
    if text_task:
        for summary in evaluations.values():
            summary["plan"] |= {"environment": "wordle", "decode": None}
    return RunData("t", evaluations=evaluations, yardsticks=["expert"])


@pytest.mark.parametrize("text_task", [False, True])
@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        pytest.param((0.6, 0.3, 0.33), "good", id="above both"),
        pytest.param((0.6, 0.3, 0.6), "", id="above one, not above the other"),
        pytest.param((0.5, 0.3, 0.7), "", id="above one, below the other"),
        pytest.param((0.3, 0.6, 0.3), "bad", id="below one"),
    ],
)
def test_the_first_leads_where_it_clearly_beats_all_others(
    shares: tuple[float, ...], kind: str, text_task: bool
) -> None:
    text, actual_kind = headline(with_expert(shares, text_task))

    assert actual_kind == kind
    assert "uccess rate" in text


def test_beside_a_yardstick_alone_there_is_no_verdict() -> None:
    evaluations = {"agent": evaluation(0.6), "expert": evaluation(1.0)}

    text, kind = headline(RunData("t", evaluations=evaluations, yardsticks=["expert"]))

    assert text.endswith("95 % intervals, of pairs where the episodes are the same.")
    assert kind == ""


def beside_blind_players(shares: tuple[float, ...], lead: float) -> RunData:
    names = ("agent", "fixed shares", "with another episode's prompts", "before training")
    evaluations = {name: evaluation(share) for name, share in zip(names, shares, strict=True)}
    evaluations["fixed shares"]["plan"]["policy"] = "fixed"
    evaluations["with another episode's prompts"]["plan"]["options"] = {"change": "other_episode"}
    return RunData("t", evaluations=evaluations, lead=lead)


@pytest.mark.parametrize(
    ("shares", "lead", "not_led"),
    [
        ((0.7, 0.5, 0.6, 0.65), 0.15, "with another episode's prompts."),
        ((0.7, 0.56, 0.5, 0.65), 0.15, "fixed shares."),
        pytest.param(
            (0.58, 0.52, 0.4, 0.5), 0.05, "fixed shares.", id="more ahead, intervals overlap"
        ),
    ],
)
def test_players_that_do_not_read_must_be_led_by_enough(
    shares: tuple[float, ...], lead: float, not_led: str
) -> None:
    text, kind = headline(beside_blind_players(shares, lead))

    assert kind != "good"
    assert text.partition("ahead, with intervals apart, of ")[2] == not_led


def test_a_lead_over_players_that_do_not_read_is_good() -> None:
    text, kind = headline(beside_blind_players((0.7, 0.5, 0.54, 0.65), 0.15))

    assert kind == "good"
    assert "with intervals apart" not in text


@pytest.fixture
def steered() -> dict[str, dict[str, Any]]:
    """Three evaluations of a text task, by weights of the advantages; one of them clips."""
    evaluations = {}
    for name, weight, share in (("a", 4.0, 0.5), ("b", 1.0, 0.75), ("c", 2.0, 0.25)):
        evaluations[name] = evaluation(share, "wordle")
        evaluations[name]["plan"]["decode"] = {
            "kind": "sample",
            "advantage_clip": 0.5 if name == "c" else None,
            "advantages": True,
            "advantage_weight": weight,
        }
        evaluations[name]["measures"]["divergence"] = {"mean": {"value": weight / 8}}
    return evaluations


def weights_and_divergences(data: RunData) -> list[tuple[str, ...]]:
    section = evaluation_sections.divergence_section(data)
    assert section is not None
    _, table = section.parts
    return [row[1:3] for row in table.texts()]


def test_return_is_shown_against_divergence(steered: dict[str, dict[str, Any]]) -> None:
    data = RunData("t", evaluations=steered)

    assert weights_and_divergences(data) == [("1", "0.125"), ("4", "0.500"), ("2", "0.250")]


def test_a_way_to_decode_is_a_line(steered: dict[str, dict[str, Any]]) -> None:
    section = evaluation_sections.divergence_section(RunData("t", evaluations=steered))

    assert section is not None
    plot, _ = section.parts
    assert [line.name for line in plot.lines] == ["p, sample", "p, sample, clip 0.5"]


def test_one_episode_has_no_interval_in_the_table(steered: dict[str, dict[str, Any]]) -> None:
    for evaluation_of_text in steered.values():
        evaluation_of_text["measures"]["return"]["mean"] |= {"low": None, "high": None}

    section = evaluation_sections.divergence_section(RunData("t", evaluations=steered))

    assert section is not None
    _, table = section.parts
    assert {row[-1].partition(" ")[2] for row in table.texts()} == {"[n/a]"}


def test_actions_of_text_are_no_steps(steered: dict[str, dict[str, Any]]) -> None:
    notes = [note for _, _, note in facts(RunData("t", evaluations=steered))]

    assert notes == ["1 actions, 1 actions/s"] * 3


def test_an_evaluation_without_decoding_has_no_divergence(
    steered: dict[str, dict[str, Any]],
) -> None:
    steered["a"]["plan"]["decode"] = None

    assert weights_and_divergences(RunData("t", evaluations=steered)) == [
        ("1", "0.125"),
        ("2", "0.250"),
    ]


def test_evaluations_without_divergence_have_no_section(steered: dict[str, dict[str, Any]]) -> None:
    for summary in steered.values():
        del summary["measures"]["divergence"]

    assert evaluation_sections.divergence_section(RunData("t", evaluations=steered)) is None


@pytest.fixture
def checkpoints() -> RunData:
    """An agent, and an earlier checkpoint of it that succeeds as often."""
    evaluations = {
        "agent": evaluation(0.9),
        "before": evaluation(0.9),
        "random": evaluation(0.3),
    }
    evaluations["agent"]["plan"] |= {"policy": "runs/agent", "checkpoint": 500}
    evaluations["before"]["plan"] |= {"policy": "runs/agent", "checkpoint": 0}
    return RunData("t", evaluations=evaluations)


def test_checkpoints_of_equal_returns_do_not_differ(checkpoints: RunData) -> None:
    _, kind = headline(checkpoints)

    assert kind == ""


def test_an_earlier_checkpoint_is_compared_by_return(checkpoints: RunData) -> None:
    for row in checkpoints.evaluations["before"]["rows"]:
        row["return"] *= 0.9

    text, kind = headline(checkpoints)

    assert kind == "good"
    assert "mean return minus that before 0.09 [" in text
    assert "agent does better than before and random" in text


@pytest.fixture
def task_alone() -> RunData:
    return RunData("t", evaluations={"agent": evaluation(0.6), "random": evaluation(0.3)})


@pytest.mark.parametrize(
    "part", ["Reward against progress", "Reward training", "what paid most", "reward hacking"]
)
def test_a_run_of_the_task_alone_has_no_reward_parts(task_alone: RunData, part: str) -> None:
    text = run_page(task_alone) + run_markdown(task_alone)

    assert headlines.task_alone(task_alone)
    assert part not in text


def test_an_evaluation_with_a_reward_is_checked_for_hacking(task_alone: RunData) -> None:
    task_alone.evaluations["agent"]["plan"]["reward"] = {"dir": "runs/reward"}

    assert not headlines.task_alone(task_alone)
    assert "Reward against progress" in run_page(task_alone)


def test_a_training_alone_says_nothing_yet() -> None:
    training = RunData("t", episodes={"return": CURVE})

    assert headline(training) == ("Nothing can be said yet: no two evaluations were given.", "")


@pytest.mark.parametrize(
    "part",
    [
        {"reward_train": {"a": CURVE}},
        {"dataset": {"pairs": "1"}},
        {"reward_reads": ("glyphs",)},
        {"learned": LabelLogReport("")},
        {"episodes": {"intrinsic_return": CURVE}},
    ],
)
def test_a_run_with_reward_parts_is_not_the_task_alone(part: dict[str, Any]) -> None:
    training = RunData("t", episodes={"return": CURVE})

    assert headlines.task_alone(training)
    assert not headlines.task_alone(replace(training, **part))


@pytest.mark.parametrize(
    ("part", "is_run"), [("metrics", True), ("text", True), ("language", False), (None, False)]
)
def test_only_a_run_that_played_is_of_the_task_alone(part: str | None, is_run: bool) -> None:
    data = RunData("t") if part is None else RunData("t", **{part: {"a": CURVE}})

    assert headlines.task_alone(data) == is_run


def test_a_reward_that_reads_more_is_not_checked_for_hacking() -> None:
    training = RunData("t", episodes={"return": CURVE}, reward_reads=("glyphs",))

    [verdict] = hacking.judge_run(training)

    assert verdict.line.startswith(
        "The training is not checked for reward hacking: a reward that reads more"
    )


@pytest.mark.parametrize("data", [RunData("t"), RunData("t", episodes={"return": CURVE})])
def test_a_run_without_intrinsic_returns_is_not_checked_for_hacking(data: RunData) -> None:
    [verdict] = hacking.judge_run(data)

    assert verdict.line.startswith(
        "Not checked for reward hacking: no intrinsic return was recorded"
    )


def test_agents_that_earn_nothing_have_a_headline() -> None:
    data = with_expert((0.0, 0.0, 0.0), text_task=True)
    for summary in data.evaluations.values():
        for row in summary["rows"]:
            row["return"] = 0.0
        summary["measures"]["return"] = asdict(summarise_rows(summary["rows"], 200, 0.95)["return"])

    text, kind = headline(data)

    assert text == "The return of all episodes is 0: agent, before training, random, expert."
    assert kind == ""


def test_yardsticks_alone_have_means_and_no_verdict() -> None:
    data = with_expert((0.6, 0.3, 0.3), text_task=True)
    only = RunData("t", evaluations={"expert": data.evaluations["expert"]}, yardsticks=["expert"])

    text, kind = headline(only)

    assert text.startswith("Mean return of ")
    assert kind == ""
