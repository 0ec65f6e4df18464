"""The table of a GPU's figures names what was measured, on what, and what was not done."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

gpu_table = runpy.run_path(str(REPOSITORY / "launch" / "gpu_table.py"))
MACHINE = {"cores": 16, "processor": "a", "devices": ["NVIDIA H100"], "jax": "1"}
MEASURED = {"date": "2026-11-30", "limit": 75, "code": 0, "machine": MACHINE}
LATE = {**MEASURED, "code": 124}
SCORE = {
    **MEASURED, "item": "score", "value": 743.0, "unit": "prompts/s", "first_step_seconds": 11.0, "peak_share": 0.37,
    "settings": {"dtype": "bfloat16"},
}  # fmt: skip


def table_of(tmp_path: Path, *lines: dict[str, Any]) -> str:
    """The table of a file of these lines."""
    figures = tmp_path / "figures.jsonl"
    figures.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table: str = gpu_table["table"](gpu_table["read"](figures))
    return table


def test_a_program_stands_with_its_first_and_second_start(tmp_path: Path) -> None:
    cold = {**SCORE, "item": "score_cold", "first_step_seconds": 46.0}

    table = table_of(tmp_path, cold, SCORE)

    assert "**Machine:** NVIDIA H100, 16 cores of a, jax 1, 2026-11-30." in table
    assert (
        "| **743 prompts/s**, 0.37 of bfloat16 matrix products | from start to first step: 46 s cold, "
        "11 s with compiled programs kept | `:score_gpu` |" in table
    )
    assert "| greedy text, GPT-2 medium | not measured |" in table


def test_a_training_that_was_late_says_so_beside_its_rate(tmp_path: Path) -> None:
    settings = {
        "workers": 15,
        "envs_per_worker": 80,
        "groups_per_worker": 4,
        "batch_size": 16384,
        "warmup_seconds": 5.0,
    }
    train = {**LATE, "item": "train", "value": 145_000.0, "settings": settings}

    table = table_of(tmp_path, SCORE, train)

    assert (
        "15 workers x 80 in 4 groups, batch 16,384 | **145,000 steps/s** after 5 s of training "
        "| not done in 75 s | `:train_gpu` |" in table
    )


def test_inference_is_that_of_the_most_rows(tmp_path: Path) -> None:
    inference = {
        **MEASURED, "item": "inference", "value": 16e12, "rows": 1200, "rows_per_second": {"80": 5_000.0, "1200": 9_000.0},
        "baseline": {"what": "matrix product", "value": 600e12},
    }  # fmt: skip

    table = table_of(tmp_path, inference)

    assert "| inference alone, 1,200 rows a call | 9,000 rows/s, 16 TFLOP/s |" in table


def test_a_figure_stands_where_a_later_try_failed(tmp_path: Path) -> None:
    tries = [
        {**LATE, "item": "score"},
        SCORE,
        {**SCORE, "value": 744.0},
        {**LATE, "item": "score", "value": 745.0},
    ]

    assert "**744 prompts/s**" in table_of(tmp_path, *tries)


def test_figures_of_several_kinds_of_machines_are_refused(tmp_path: Path) -> None:
    other = {**SCORE, "item": "generate", "machine": {**MACHINE, "devices": ["NVIDIA H200"]}}

    with pytest.raises(ValueError, match="of 2 kinds of machines"):
        table_of(tmp_path, SCORE, other)


def test_the_table_stands_between_its_marks() -> None:
    page = gpu_table["PAGE"].read_text(encoding="utf-8")

    written = gpu_table["replaced"](page, "made")

    assert written.count("\nmade\n") == 1
    assert written.partition(gpu_table["BEGIN"])[0] == page.partition(gpu_table["BEGIN"])[0]
    assert written.partition(gpu_table["END"])[2] == page.partition(gpu_table["END"])[2]
