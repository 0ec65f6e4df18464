"""The table of a GPU's figures names what was measured, on what, and what was not done."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

# The scripts of launch/ import each other by their names.
sys.path.insert(0, str(REPOSITORY / "launch"))
gpu_table = importlib.import_module("gpu_table")

MACHINE = {
    "item": "machine",
    "gpu": "GPU 0: NVIDIA H100",
    "processor": "a",
    "cores": 16,
    "jax": "1",
    "python": "3",
    "date": "d",
}


@pytest.mark.parametrize(
    ("programs", "words"),
    [(7, "11 s with 7 compiled programs from disk"), (None, "11 s with compiled programs kept")],
)
def test_the_table_says_whether_a_start_was_warm(tmp_path: Path, programs: int, words: str) -> None:
    score = {"item": "score", "value": 2.0, "unit": "prompts/s", "first_step_seconds": 11.0}
    figures = tmp_path / "figures.jsonl"
    lines = [MACHINE, {**score, "reused_programs": programs}]
    # The last line is cut off by a kill.
    figures.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"item": "sco')
    assert words in gpu_table.table(gpu_table.read(figures))


def test_the_table_between_its_marks_names_the_missing_items(tmp_path: Path) -> None:
    train = {
        "item": "train", "value": 145_000.0, "baseline": {"what": "w", "value": 327_000.0},
        "settings": {"workers": 15, "envs_per_worker": 80, "groups_per_worker": 4, "batch_size": 16384},
    }  # fmt: skip
    games = {
        "item": "games",
        "value": 17_000.0,
        "steps_per_second_by_the_clock": 290_000.0,
        "settings": {"workers": 15, "envs_per_worker": 80},
    }
    whole_step = {
        "item": "text_train_step", "value": 9.0, "settings": {"dtype": "bfloat16"}, "error": "not done in 90 s",
        "step": {"compile_seconds": 60.0, "tokens_per_second": 70_000.0, "peak_share": 0.21},
    }  # fmt: skip
    lines = [
        MACHINE,
        {"item": "score", "error": "late"},
        games,
        whole_step,
        {**train, "item": "train_laptop"},
        train,
        {"item": "score", "error": "not done in 60 s"},
    ]
    figures = tmp_path / "figures.jsonl"
    figures.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{gpu_table.BEGIN}\nstale row\n{gpu_table.END}\nafter\n")
    command = [sys.executable, str(REPOSITORY / "launch" / "gpu_table.py"), str(figures), str(page)]
    subprocess.run(command, check=True, capture_output=True)
    written = page.read_text()
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "stale row" not in written
    assert "**Machine:** NVIDIA H100, 16 cores" in written
    assert (
        "| **145,000 steps/s** (untrained policy, first seconds) | 0.50 of the games alone; "
        in written
    )
    assert (
        "| training with `laptop`'s network, task's reward, 15 workers x 80 in 4 groups" in written
    )
    assert "| **70,000 tokens/s**, 0.21 of bfloat16 matrix products | compiled in 60 s |" in written
    assert "| scores of candidates, Flan-T5-large | not done in 60 s |" in written


def test_the_page_has_the_tables_marks() -> None:
    page = gpu_table.PAGE.read_text(encoding="utf-8")
    assert gpu_table.replaced(page, "made").count("\nmade\n") == 1


def run(tmp_path: Path, *lines: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The command that writes the figures of these lines into tmp_path / page.md."""
    figures = tmp_path / "figures.jsonl"
    figures.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, str(REPOSITORY / "launch" / "gpu_table.py")]
    command += [str(figures), str(tmp_path / "page.md")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("lines", "count"), [([], 0), ([MACHINE, {**MACHINE, "gpu": "GPU 0: NVIDIA H200"}], 2)]
)
def test_figures_of_none_or_several_kinds_of_machines_are_refused(
    tmp_path: Path, lines: list[dict[str, Any]], count: int
) -> None:
    page = f"before\n{gpu_table.BEGIN}\nkept\n{gpu_table.END}\n"
    (tmp_path / "page.md").write_text(page)
    done = run(tmp_path, *lines)
    assert done.returncode == 2
    assert f"has the figures of {count} kinds of machines" in done.stderr.splitlines()[-1]
    assert (tmp_path / "page.md").read_text() == page


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("no marks\n")
    done = run(tmp_path, MACHINE)
    assert (done.returncode, (tmp_path / "page.md").read_text()) == (2, "no marks\n")
    assert "the page lacks the lines" in done.stderr.splitlines()[-1]


def test_two_calls_on_machines_of_one_kind_make_one_table(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"{gpu_table.BEGIN}\n{gpu_table.END}\n")
    assert run(tmp_path, MACHINE, {**MACHINE, "date": "e"}).returncode == 0
    assert "16 cores of a, jax 1, Python 3, e." in (tmp_path / "page.md").read_text()


def test_a_late_item_without_its_baseline_has_its_value() -> None:
    late = {
        "item": "attention",
        "value": 5.0,
        "unit": "queries/s",
        "error": "not done in 30 s",
    }
    table = gpu_table.table({"machine": MACHINE, "attention": late})
    assert "| 5 queries/s | not done in 30 s | `:attention_gpu` |" in table


def test_a_figure_stands_where_a_later_try_failed(tmp_path: Path) -> None:
    figures = tmp_path / "figures.jsonl"
    tries = [
        {"item": "score", "error": "too early"},
        {"item": "score", "value": 1.0},
        {"item": "score", "value": 2.0},
        {"item": "score", "value": 3.0, "error": "not done in 9 s"},
    ]
    figures.write_text("".join(json.dumps(line) + "\n" for line in (MACHINE, *tries)))

    assert gpu_table.read(figures)["score"] == {"item": "score", "value": 2.0}


def test_inference_is_that_of_the_most_rows() -> None:
    line = {
        "item": "inference",
        "value": 16e12,
        "rows": 1200,
        "rows_per_second": {"80": 5_000.0, "1200": 9_000.0},
        "baseline": {"what": "matrix product", "value": 600e12},
    }
    table = gpu_table.table({"machine": MACHINE, "inference": line})
    assert "| inference alone, 1,200 rows a call | 9,000 rows/s, 16 TFLOP/s |" in table


def test_a_training_that_was_late_says_so_beside_its_rate() -> None:
    settings = {"workers": 15, "envs_per_worker": 80, "groups_per_worker": 4, "batch_size": 4096}
    line = {"item": "train", "value": 1e5, "settings": settings, "error": "not done in 75 s"}
    table = gpu_table.table({"machine": MACHINE, "train": line})
    assert (
        "| **100,000 steps/s** (untrained policy, first seconds) | not done in 75 s | `:train_gpu` |"
        in table
    )


def test_errors_of_tests_count_as_failures() -> None:
    counts = {"passed": 7, "failed": 2, "error": 3, "skipped": 1}
    line = {"item": "numeric_tests", "tests": counts, "seconds": 60.0}
    table = gpu_table.table({"machine": MACHINE, "numeric_tests": line})
    assert "| 7 passed, 5 failed | 60 s | `pytest --numeric --all` |" in table
