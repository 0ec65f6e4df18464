"""Files of tests of generalisation: what is written, and what is read again."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.core import run_folder
from motif_jax.glam import generalisation_files


@pytest.fixture
def rows_of_test() -> list[dict[str, Any]]:
    return [
        {
            "success": float(episode % 2),
            "return": 0.5 * (episode % 3),
            "length": 9 + episode,
            "kind": episode % 2,
        }
        for episode in range(6)
    ]


@pytest.fixture
def summary(tmp_path: Path, rows_of_test: list[dict[str, Any]]) -> dict[str, Any]:
    """Two tests, as they are written to tests.json."""
    base = [
        {"success": float(episode < 4), "return": float(episode % 2), "length": 9, "kind": 0}
        for episode in range(6)
    ]
    numbers = generalisation_files.summarise(
        rows_of_test, base, ["goto", "pickup", "open"], 50, 0.9
    )
    tests = [{"name": name, "what": "w, x", "environment": "e", **numbers} for name in "nm"]
    written = {
        "player": "p",
        "base": "b",
        "episodes": 6,
        "confidence": 0.9,
        "left_out": [],
        "tests": tests,
    }
    run_folder.write_config(tmp_path, {"stage": "test_language_agent"})
    generalisation_files.write(tmp_path, written)
    return written


def test_a_test_has_its_means_and_its_change(summary: dict[str, Any]) -> None:
    first = summary["tests"][0]

    assert first["success"]["value"] == 0.5
    assert first["return"]["value"] == 0.5
    assert first["success_change"]["value"] == pytest.approx(0.5 - 4 / 6)


def test_only_kinds_that_were_played_have_numbers(summary: dict[str, Any]) -> None:
    by_kind = summary["tests"][0]["by_kind"]

    assert {kind: numbers["episodes"] for kind, numbers in by_kind.items()} == {
        "goto": 3,
        "pickup": 3,
    }


def test_tests_are_read_as_they_were_written(tmp_path: Path, summary: dict[str, Any]) -> None:
    assert generalisation_files.read(tmp_path) == summary


def test_commas_do_not_part_a_cell_of_the_csv_file(tmp_path: Path, summary: dict[str, Any]) -> None:
    with open(tmp_path / "tests.csv", newline="") as file:
        rows = list(csv.DictReader(file))

    assert [row["test"] for row in rows] == ["n", "m"]
    assert {row["what"] for row in rows} == {"w, x"}


def test_returns_are_written_in_the_published_layout(
    tmp_path: Path, rows_of_test: list[dict[str, Any]]
) -> None:
    generalisation_files.write_returns(tmp_path, "n", rows_of_test)

    returns = np.load(tmp_path / "return_per_episode" / "n.npy")
    assert returns.tolist() == [0, 0.5, 1, 0, 0.5, 1]
