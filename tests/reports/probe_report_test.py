"""Probes, tests of generalisation and kinds of task on a run's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.display import page
from motif_jax.envs.babyai_text import probes as probe_files
from motif_jax.reports import evaluation_sections, probe_report
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import HOSTILE

UNSURE = [0.5, 0.25, 0.25]
SURE = [0.9, 0.05, 0.05]
NAME = f"goal {HOSTILE}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one probe of two clauses, at three updates."""
    prompt = "Possible action: x \n Goal: g \n Observation 0: o \n Action 0: "
    probe = {
        "name": NAME,
        "goal": "go to the red ball",
        "actions": [],
        "observations": [["a wall", "a red ball"]],
        "prompt": prompt,
    }
    description = {"actions": ["left", "right", "on"], "probes": [probe]}
    (tmp_path / probe_files.DESCRIPTION).write_text(json.dumps(description))
    lines = [
        {"update": update, "step": 100 * update, "probabilities": [probabilities]}
        for update, probabilities in enumerate((UNSURE, UNSURE, SURE))
    ]
    (tmp_path / probe_files.LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    without = [
        {"probe": 0, "observation": 0, "clause": 0, "probabilities": SURE},
        {"probe": 0, "observation": 0, "clause": 1, "probabilities": [0.3, 0.05, 0.65]},
    ]
    (tmp_path / probe_files.CLAUSES).write_text(
        json.dumps({"update": 2, "step": 200, "without": without}) + "\n"
    )
    return tmp_path


def read(run: Path) -> probe_report.Probes:
    contents = probe_report.read(run)
    assert contents is not None
    return contents


def rendered(contents: probe_report.Probes) -> str:
    section = probe_report.section(contents)
    assert section is not None
    return page.render("t", "", [section])


def test_probabilities_are_read_by_update(run: Path) -> None:
    contents = read(run)

    assert contents.actions == ("left", "right", "on")
    assert contents.names == (NAME,)
    assert contents.steps.tolist() == [0, 100, 200]
    assert contents.probabilities.tolist() == [[UNSURE], [UNSURE], [SURE]]


def test_a_clause_is_worth_what_the_policy_changes_without_it(run: Path) -> None:
    largest, smallest = read(run).clauses

    # Half of |.9 - .3| + |.05 - .65|.
    assert largest == (NAME, "a red ball", pytest.approx(0.6), "left", pytest.approx(0.6))
    assert smallest == (NAME, "a wall", 0, "left", 0)


def test_names_and_clauses_are_shown_as_text(run: Path) -> None:
    text = rendered(read(run))

    assert HOSTILE not in text
    assert "a red ball" in text


def test_more_updates_than_columns_are_thinned_out(run: Path) -> None:
    probabilities = np.arange(225.0).reshape(75, 1, 3) / 225
    contents = read(run)._replace(
        steps=np.arange(75) * 100, probabilities=probabilities, clauses=()
    )

    text = rendered(contents)

    assert text.count("<title>left at step") == 60
    assert "left at step 0:" in text
    assert "left at step 7,400:" in text


def test_a_run_without_probes_has_no_section(tmp_path: Path) -> None:
    assert probe_report.section(probe_report.read(tmp_path)) is None


def test_a_run_before_its_first_update_has_no_probes(run: Path) -> None:
    (run / probe_files.LINES).write_text("")

    assert probe_report.read(run) is None


def summary_of(*names: str) -> dict[str, Any]:
    numbers = {
        "success": {"value": 0.5, "low": 0.4, "high": 0.6},
        "success_change": {"value": -0.2, "low": -0.3, "high": -0.1, "pairs": 9},
    }
    tests = [{"name": name, "what": "w", **numbers} for name in names]
    return {"tests": tests, "episodes": 9, "confidence": 0.95}


def test_players_stand_side_by_side_in_every_test() -> None:
    summaries = {
        "agent": summary_of("no_modification_test", "french"),
        "random": summary_of("no_modification_test"),
    }

    section = evaluation_sections.generalisation_section(summaries)

    assert section is not None
    unchanged, changed = section.parts[0].texts()
    assert unchanged == ("no_modification_test", "w", "0.5 [0.4, 0.6]", "", "0.5 [0.4, 0.6]", "")
    assert changed == ("french", "w", "0.5 [0.4, 0.6]", "-0.200 [-0.3, -0.1]", "not taken", "")


def note_of(**second: Any) -> str:
    """The note on two players, the second of them with other values."""
    summary = {**summary_of("no_modification_test"), "seed": 1}
    section = evaluation_sections.generalisation_section(
        {"agent": summary, "clone": {**summary, **second}}
    )
    assert section is not None
    return section.note.partition(" Change:")[0]


def test_players_with_equal_tests_share_one_sentence() -> None:
    sentence = (
        "9 episodes a test, 95 % intervals; the same seeds in every test and for every player."
    )
    assert note_of() == sentence


def test_players_with_other_tests_are_named() -> None:
    assert note_of(episodes=5, confidence=0.9, seed=2) == (
        "agent: 9 episodes a test, 95 % intervals; clone: 5 episodes a test, 90 % intervals; "
        "the same seeds in every test."
    )


def test_a_run_without_tests_has_no_section() -> None:
    assert evaluation_sections.generalisation_section({}) is None


def evaluation_of(level: str) -> dict[str, Any]:
    rows = [
        {"kind": float(episode % 2), "success": float(episode % 2), "return": 0.5 * (episode % 2)}
        for episode in range(10)
    ]
    return {"plan": {"environment": level}, "rows": rows, "confidence": 0.95}


def test_kinds_of_task_have_rows_of_their_own() -> None:
    evaluation = evaluation_of("BabyAI-MixedTrainLocal-v0")

    section = evaluation_sections.kinds_section(RunData("t", evaluations={"agent": evaluation}))

    assert section is not None
    assert section.parts[0].texts() == [
        ("agent", "goto", "5", "0 [0, 0.434]", "0 [0, 0.434]"),
        ("agent", "pickup", "5", "1 [0.566, 1]", "0.5 [0.5, 0.5]"),
    ]


def test_a_level_of_one_kind_has_no_section_of_kinds() -> None:
    evaluation = evaluation_of("BabyAI-GoToLocal-v0")

    assert (
        evaluation_sections.kinds_section(RunData("t", evaluations={"agent": evaluation})) is None
    )
