"""Probes, tests of generalisation and kinds of task on a run's page."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.display import page
from motif_jax.reports import generalisation_files, generalisation_section, probes
from motif_jax.reports.run_data import RunData
from tests.made_up_runs import HOSTILE

SPLIT, SURE = [0.5, 0.25, 0.25], [0.9, 0.05, 0.05]


def write(folder):
    probe = {"name": f"goal {HOSTILE}", "goal": "go to the red ball", "actions": []}
    prompt = "Possible action: x \n Goal: g \n Observation 0: o \n Action 0: "
    probe |= {"observations": [["a wall", "a red ball"]], "prompt": prompt}
    told = {"actions": ["left", "right", "on"], "probes": [probe]}
    (folder / probes.DESCRIPTION).write_text(json.dumps(told))
    lines = [{"update": n, "step": 100 * n, "probabilities": [SURE if n == 2 else SPLIT]} for n in range(3)]
    (folder / probes.LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    looks = [
        {"probe": 0, "observation": 0, "clause": 0, "probabilities": SURE},
        {"probe": 0, "observation": 0, "clause": 1, "probabilities": [0.3, 0.05, 0.65]},
    ]
    (folder / probes.CLAUSES).write_text(json.dumps({"update": 2, "step": 200, "without": looks}) + "\n")


def test_clauses_are_worth_what_the_policy_changes_without_them(tmp_path):
    write(tmp_path)
    found = probes.read(tmp_path)
    most, least = found.clauses
    # Half of |.9 - .3| + |.05 - .65|.
    assert most == (f"goal {HOSTILE}", "a red ball", pytest.approx(0.6), "left", pytest.approx(0.6))
    assert least == (f"goal {HOSTILE}", "a wall", 0, "left", 0)
    assert (found.actions, found.names, found.steps.tolist()) == (
        ("left", "right", "on"),
        (most.probe,),
        [0, 100, 200],
    )
    assert found.probabilities.tolist() == [[SPLIT], [SPLIT], [SURE]]
    # More updates than a chart has columns.
    many = found._replace(
        steps=np.arange(75) * 100, probabilities=np.arange(225.0).reshape(75, 1, 3) / 225, clauses=()
    )
    for shown in (found, many):
        text = page.render("t", "", [probes.section(shown)])
        assert HOSTILE not in text
        assert "a red ball" in text or not shown.clauses
        for action in shown.actions:
            assert action in text


def test_a_run_without_probes_has_no_section_and_a_damaged_file_is_named(tmp_path):
    assert probes.section(probes.read(tmp_path)) is None
    write(tmp_path)
    with open(tmp_path / probes.LINES, "a") as file:
        file.write('{"update": 3, "step": 300, "probabilities": [[1.0]]}\n')
    with pytest.raises(UserError, match="probes"):
        probes.read(tmp_path)
    (tmp_path / probes.LINES).write_text('{"update": 3, "step": 300, "probabilities": [[1.0]]}\n')
    with pytest.raises(UserError, match=r"damaged \(probabilities of other probes or actions\): remove"):
        probes.read(tmp_path)
    (tmp_path / probes.LINES).write_text("")
    assert probes.read(tmp_path) is None, "nothing was written yet"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda test: test.pop("return"), "KeyError: 'return'"),
        (lambda test: test.update(name=5), "ValueError: a test's name is no text"),
        (lambda test: test["length"].update(low=1e15), "ValueError: length has no numbers"),
        (lambda test: test["success_change"].update(pairs="9"), "ValueError: success_change has no numbers"),
        (lambda test: test["return_change"].pop("low"), "TypeError: "),
    ],
)
def test_a_damaged_file_of_tests_is_named(tmp_path, change, said):
    with pytest.raises(UserError, match=r"it has no tests\.json; run test_language_agent there"):
        generalisation_files.read(tmp_path)
    rows = [
        {"success": float(n % 2), "return": 0.5 * (n % 3), "length": 9 + n, "kind": n % 2} for n in range(6)
    ]
    base = [{"success": float(n < 4), "return": 1.0 * (n % 2), "length": 9, "kind": 0} for n in range(6)]
    numbers = generalisation_files.summarise(rows, base, ["goto", "pickup", "open"], 50, 0.9)
    summary = {"player": "p", "base": "b", "episodes": 6, "confidence": 0.9, "left_out": []}
    summary["tests"] = [{"name": name, "what": "w, x", "environment": "e", **numbers} for name in "nm"]
    generalisation_files.write(tmp_path, summary)
    generalisation_files.write_returns(tmp_path, "n", rows)
    assert np.load(tmp_path / "return_per_episode" / "n.npy").tolist() == [0, 0.5, 1, 0, 0.5, 1]
    # Of six games three succeeded, and four of the plain ones; "w, x" is one cell.
    first = summary["tests"][0]
    assert (first["success"]["value"], first["return"]["value"]) == (0.5, 0.5)
    assert first["success_change"]["value"] == pytest.approx(0.5 - 4 / 6)
    with open(tmp_path / "tests.csv", newline="") as file:
        assert [row["test"] for row in csv.DictReader(file)] == ["n", "m"]
    assert generalisation_files.read(tmp_path) == summary
    change(summary["tests"][0])
    (tmp_path / generalisation_files.SUMMARY).write_text(json.dumps(summary))
    with pytest.raises(UserError, match=rf"tests\.json is damaged \({said}.*command writes it again"):
        generalisation_files.read(tmp_path)


def test_players_stand_side_by_side_in_every_test():
    def taken(*names):
        success, change = ({"value": value, "low": value - 0.1, "high": value + 0.1} for value in (0.5, -0.2))
        numbers = {"success": success, "success_change": {**change, "pairs": 9}}
        tests = [{"name": name, "what": "w", **numbers} for name in names]
        return {"tests": tests, "episodes": 9, "confidence": 0.95}

    both = {"agent": taken("no_modification_test", "french"), "random": taken("no_modification_test")}
    shown = generalisation_section.section(both)
    text = page.render("t", "", [shown])
    for words in ("agent", "random", "french", "0.5 [0.4, 0.6]"):
        assert words in text
    assert generalisation_section.section({}) is None


def test_kinds_of_task_have_rows_of_their_own():
    rows = [{"kind": float(n % 2), "success": float(n % 2), "return": 0.5 * (n % 2)} for n in range(10)]
    evaluation = {"plan": {"environment": "BabyAI-MixedTrainLocal-v0"}, "rows": rows, "confidence": 0.95}
    [table] = generalisation_section.by_kind(RunData("t", evaluations={"agent": evaluation})).parts
    assert table.texts() == [
        ("agent", "goto", "5", "0 [0, 0.434]", "0 [0, 0]"),
        ("agent", "pickup", "5", "1 [0.566, 1]", "0.5 [0.5, 0.5]"),
    ]
    evaluation["plan"]["environment"] = "BabyAI-GoToLocal-v0"
    assert generalisation_section.by_kind(RunData("t", evaluations={"agent": evaluation})) is None
