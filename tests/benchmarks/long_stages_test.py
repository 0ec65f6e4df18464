"""The program that watches all long stages: its commands, its table, its refusals. The watching itself is in endurance_test.py."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import endurance
from tests.docs_test import takes
from tests.endurance import LINES, STAGES, Inputs


@pytest.mark.parametrize("name", STAGES)
def test_commands_parse(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inputs, "trajectories", tmp_path / "trajectories")
    monkeypatch.setattr(Inputs, "dataset", tmp_path / "dataset")
    monkeypatch.setattr(Inputs, "prompts", tmp_path / "prompts.jsonl")
    at = Inputs(tmp_path / "quickstart", tmp_path / "glam", tmp_path / "ilql", tmp_path, 8000, 15)
    config, *flags = shlex.split(endurance.command(name, at))
    for flag in flags:
        assert takes(f"configs/{config}", flag), flag


def line(stage: str) -> dict[str, Any]:
    return {
        "stage": stage,
        "minutes": 15.02,
        "value": 1210.0,
        "baseline": {"value": 1179.0},
        "slope_mb_per_hour": {"all together": 31.2, "program": 30.0},
        "largest_memory_mb": {"all together": 1234.0},
        "memory_mb": {"program": [900.0, 910.0], "helper 7": [279.0, 300.0]},
        "threads": {"program": [20, 22], "helper 7": [1, 1]},
        "files": {"program": [40, 40], "helper 7": [9, 12]},
        "disk_mb": [10.0, 12.25],
        "left_behind": [],
    }


def test_the_newest_line_of_each_stage_is_written_into_the_page_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {**line("train_text"), "minutes": 3.0}
    found = [old, line("train_text"), line("collect")]
    (tmp_path / LINES).write_text("".join(json.dumps(one) + "\n" for one in found))
    for one in found:
        (tmp_path / one["stage"]).mkdir(exist_ok=True)
        samples = [{"seconds": 60.0 * n, "processes": {"program": {"memory": 900.0 + n}}} for n in range(3)]
        (tmp_path / one["stage"] / "samples.json").write_text(json.dumps(samples))
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    page.write_text(
        "before\n<!-- endurance: written by tests/endurance.py --page -->\nold\n<!-- endurance: end -->\nafter\n"
    )
    given = ["endurance.py", f"--folder={tmp_path}", f"--page={page}", f"--picture={picture}"]
    monkeypatch.setattr(sys, "argv", given)
    assert endurance.main() == 0
    before, _, _, head, _, *rows, _, end, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert end == "<!-- endurance: end -->"
    assert [row.split(" | ")[0] for row in rows] == ["| `collect`", "| `train_text`"]
    named = dict(zip(head.strip("| ").split(" | "), rows[1].strip("| ").split(" | "), strict=True))
    assert (named["minutes"], named["processes"], named["most"]) == ("15", "2", "1,234")
    assert (named["MB when warm"], named["at the end"]) == ("1,179", "1,210")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("given", [["1", "no_stage"], ["0"], ["--together=0"], ["--runs=nowhere"]])
def test_what_cannot_be_is_refused(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["endurance.py", f"--folder={tmp_path / 'out'}", *given])
    assert endurance.main() == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (tmp_path / "out").exists()
