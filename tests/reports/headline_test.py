"""The sentence that stands first: result and warnings weighed together."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from motif_jax.core.metric_files import Curve
from motif_jax.display import measures
from motif_jax.reports import evaluation_sections, hacking, report
from motif_jax.reports.headline import compared, headline
from motif_jax.reports.report import facts
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import run_data

GAMES = 40


def evaluation(rows: list[dict[str, Any]]) -> dict[str, Any]:
    summaries = measures.summarise_rows(rows, 200, 0.95)
    return {
        "plan": {"policy": "p", "environment": "e", "options": {}},
        "episodes": len(rows), "confidence": 0.95, "intervals": "bootstrap", "steps": 1, "steps_per_second": 1.0,
        "measures": {key: asdict(summary) for key, summary in summaries.items()},
        "rows": rows,
    }  # fmt: skip


def rows(rewards: np.ndarray, depths: np.ndarray, first_seed: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "seed": first_seed + index,
            "intrinsic_return": float(reward),
            "return": 0.0,
            "dlvl": float(depth),
        }
        for index, (reward, depth) in enumerate(zip(rewards, depths, strict=True))
    ]


def agent_and_random(deeper: float, first_seed: int = 0) -> RunData:
    """An agent that collects 2 more a game, which differ by far more, and goes `deeper` levels
    further down.
    """
    generator = np.random.default_rng(0)
    luck = generator.gamma(1, 50, GAMES)
    depth = generator.normal(3, 0.1, GAMES)
    more = generator.normal(2, 1, GAMES)
    evaluations = {
        "agent": evaluation(rows(luck + more, depth + deeper)),
        "random": evaluation(rows(luck, depth, first_seed)),
    }
    return RunData("t", evaluations=evaluations)


@pytest.mark.parametrize(
    ("deeper", "kind", "progress"),
    [
        (0.5, "good", "Progress rises too: dungeon level 3.03 to 3.53 from random to agent."),
        (0.0, "", "No measure of progress rises clearly."),
        (-0.5, "bad", "the reward may be hacked: dungeon level falls from random to agent."),
    ],
)
def test_more_reward_is_weighed_against_progress(deeper: float, kind: str, progress: str) -> None:
    data = agent_and_random(deeper)

    text, actual_kind = headline(data)

    assert actual_kind == kind
    assert text.endswith(progress)
    assert "over 40 games that both played): agent collects more." in text
    assert report.as_json(data)["headline"] == {"text": text, "kind": kind}


def test_less_reward_is_bad() -> None:
    data = agent_and_random(0.0)
    data.evaluations = dict(reversed(data.evaluations.items()))

    text, kind = headline(data)

    assert kind == "bad"
    assert text.endswith(": random collects LESS.")


def test_less_reward_of_a_better_agent_is_not_bad() -> None:
    data = agent_and_random(0.0)
    data.evaluations = dict(reversed(data.evaluations.items()))
    for name, won in (("random", 1.0), ("agent", 0.0)):
        played = [row | {"success": won} for row in data.evaluations[name]["rows"]]
        data.evaluations[name] = evaluation(played)

    text, kind = headline(data)

    assert kind == ""
    assert text.endswith(
        "random collects LESS. Yet there is progress: success rate 0 to 1 from agent to random."
    )


def test_an_agent_that_wins_is_not_judged_by_what_its_environment_counts() -> None:
    """Connection errors, say: they fall where an agent learns."""
    evaluations = {}
    for name, won in (("agent", 1.0), ("random", 0.0)):
        played = [
            {**row, "success": won, "return": won, "errors": 4.0 - 4.0 * won}
            for row in rows(np.full(GAMES, 1.0 + won), np.ones(GAMES))
        ]
        evaluations[name] = evaluation(played)
    data = RunData("t", evaluations=evaluations, progress={})

    text, kind = headline(data)

    assert kind == "good"
    assert text.endswith(
        "Progress rises too: success rate 0 to 1, return 0 to 1 from random to agent."
    )
    data.progress = {"errors": 1}
    assert headline(data)[1] == "bad"


def test_no_success_and_no_return_are_in_the_table() -> None:
    played = [row | {"success": 0.0, "gold": 0.0} for row in rows(np.ones(GAMES), np.ones(GAMES))]
    data = RunData("t", evaluations={name: evaluation(played) for name in ("agent", "random")})

    _, cells = evaluation_sections.comparison(data)

    shown = {title: numbers for title, *numbers in cells}
    assert shown["success rate (share)"] == [
        "0 [0, 0.0876]",
        "0 [0, 0.0876]",
        "0 [-0.0876, 0.0876]",
    ]
    assert shown["return (reward)"][0] == "0 [0, 0.0876]"
    assert "gold (pieces)" not in shown


def test_one_evaluation_alone_is_neither_good_nor_bad() -> None:
    data = agent_and_random(0.5)
    del data.evaluations["random"]

    text, kind = headline(data)

    assert kind == ""
    assert "no two evaluations were given" in text


def test_means_over_different_games_have_no_clear_difference() -> None:
    text, kind = headline(agent_and_random(0.0, first_seed=1000))

    assert kind == ""
    assert text.endswith("(95 % interval, each over its own games): no clear difference.")


def test_a_warning_names_the_progress_that_rises_too() -> None:
    generator = np.random.default_rng(0)
    evaluations = {}
    for name, more, kills in (("agent", 9, 5.0), ("random", 0, 1.0)):
        played = rows(generator.normal(more, 1, GAMES), np.full(GAMES, 3 - more / 9))
        for row in played:
            row["kills"] = kills + row["index"] % 2
        evaluations[name] = evaluation(played)

    text, kind = headline(RunData("t", evaluations=evaluations))

    assert kind == "bad"
    assert "progress in part only" in text
    assert text.endswith(
        "dungeon level falls from random to agent, while progress rises in kills 1.50 to 5.50."
    )


@pytest.fixture
def rated_by_two_rewards() -> RunData:
    generator = np.random.default_rng(0)
    evaluations = {}
    for name, more, step in (("agent", 90, 1144), ("random", 0, 2160)):
        evaluations[name] = evaluation(rows(generator.gamma(1, 50, GAMES) + more, np.ones(GAMES)))
        evaluations[name]["plan"]["reward"] = {"dir": "runs/oni", "step": step, "quantile": 0.5}
    return RunData("t", evaluations=evaluations)


def test_rewards_that_differ_are_named(rated_by_two_rewards: RunData) -> None:
    text, kind = headline(rated_by_two_rewards)

    warning = "agent and random were rated by different rewards (step 1144 and 2160)"
    assert text.startswith(warning)
    assert kind == ""
    assert warning in evaluation_sections.evaluation_section(rated_by_two_rewards).note


def test_returns_of_different_rewards_are_not_compared(rated_by_two_rewards: RunData) -> None:
    against = {
        row.measure.key: row.against for row in evaluation_sections.rows_of(rated_by_two_rewards)
    }
    [verdict] = hacking.judge_run(rated_by_two_rewards)

    assert against["intrinsic_return"] == {}
    assert against["dlvl"] != {}
    assert verdict.line == (
        "Not checked for reward hacking: random and agent were rated by different rewards (step 2160 and 1144)."
    )


def test_a_folder_by_two_names_is_one_reward(rated_by_two_rewards: RunData) -> None:
    other = {"dir": os.path.abspath("runs/oni"), "step": 1144}
    rated_by_two_rewards.evaluations["random"]["plan"]["reward"] |= other

    text, _ = headline(rated_by_two_rewards)

    assert "agent collects more" in text


def test_a_warning_of_the_training_is_in_the_headline(tmp_path) -> None:
    data = run_data(tmp_path, hacking=True)
    data.evaluations = {}

    text, kind = headline(data)

    assert kind == "bad"
    assert "no two evaluations were given" in text
    assert "may be hacked" in text


def test_an_agent_that_repeats_one_text_is_bad_news() -> None:
    data = agent_and_random(deeper=1.0)
    data.standstill = "the agent stays where one text comes again and again"

    text, kind = headline(data)

    assert kind == "bad"
    assert "agent collects more" in text
    assert text.endswith("Beware: the agent stays where one text comes again and again.")
    assert compared(data)[1] == "good", "what must lead still does"


def test_an_accuracy_over_no_pairs_is_no_number() -> None:
    summary = {"validation/accuracy": None, "validation/accuracy_pairs": 0}

    assert facts(RunData("t", reward_summary=summary)) == []


def test_an_accuracy_is_shown_with_its_pairs() -> None:
    summary = {"validation/accuracy": 0.5, "validation/accuracy_pairs": 2}

    assert facts(RunData("t", reward_summary=summary)) == [
        ("validation accuracy", "50.0 %", "2 pairs without ties")
    ]


def test_a_run_without_a_summary_has_its_csvs_last_accuracy() -> None:
    of_finite = RunData("t", reward_validation={"validation_accs": np.array([0.5, 0.755])})
    of_ties = RunData("t", reward_validation={"validation_accs": np.array([0.5, np.nan])})

    assert facts(of_finite) == [
        ("validation accuracy", "75.5 %", "pairs without ties, after 1 epoch")
    ]
    assert facts(of_ties) == []


def test_the_held_out_loss_is_the_newest_beside_the_best() -> None:
    curve = Curve(np.arange(0, 4000, 1000), np.array([3.0, 1.5, 1.75, np.nan]))
    data = RunData("t", text={"validation/loss": curve}, metrics={"a": curve})

    assert facts(data) == [
        ("training steps", "3k", "steps of the environments"),
        ("held-out loss", "1.75", "at step 2,000; best 1.5 at step 1,000"),
    ]


def test_a_measure_that_some_episodes_lack_is_not_compared() -> None:
    data = agent_and_random(0.0)
    evaluations = {}
    for name, shown in (("agent", 2), ("random", 1)):
        shown_rows = data.evaluations[name]["rows"]
        for row in shown_rows[::shown]:
            row["success"] = 1.0 if name == "agent" else row["index"] % 2
        evaluations[name] = evaluation(shown_rows)
    data = RunData("t", evaluations=evaluations)

    (row,) = [row for row in evaluation_sections.rows_of(data) if row.measure.key == "success"]

    assert (list(row.summaries), row.against) == (["random"], {})
    assert headline(data)[0]
