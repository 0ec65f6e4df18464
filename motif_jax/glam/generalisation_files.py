"""Files of generalisation tests: each test's numbers and change, and arrays of returns in the
published layout.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import run_folder
from motif_jax.core.files import atomic_write_bytes, atomic_write_json, atomic_write_text, read_json
from motif_jax.display import measures
from motif_jax.display.statistics import CONFIDENCE, RESAMPLES, Estimate

SUMMARY = "tests.json"
TABLE = "tests.csv"
FOLDER = "tests"  # a folder of episodes for each test
RETURNS = "return_per_episode"  # the published layout: an array of returns for each test
HEADER = ("test", "success", "change", "return", "change of return", "length")
_MEASURED = ("success", "return", "length")
_ESTIMATED = (*_MEASURED, "success_change", "return_change")
Rows = Sequence[Mapping[str, Any]]


def summarise(
    rows: Rows,
    base: Rows,
    kinds: Sequence[str],
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> dict[str, Any]:
    """Summarises a test's `rows`; `base` are the rows of the unchanged task with the same seeds.

    Returns:
      `episodes`; success, return and length as {value, low, high}; `success_change` and
      `return_change` against `base` as {value, low, high, pairs}; `by_kind`: kind of task (of
      `kinds`) -> the same without changes.
    """
    changes = {}
    for key in ("success", "return"):
        values = np.array([row[key] for row in rows])
        base_values = np.array([row[key] for row in base])
        # Paired: both have the same seeds, so that the difficulty of the episodes cancels.
        change = measures.difference(key, values, base_values, True, resamples, confidence)
        changes[f"{key}_change"] = asdict(change)
    by_kind = {}
    for number, kind in enumerate(kinds):
        # Of few episodes a kind may not have been drawn.
        rows_of_kind = [row for row in rows if row["kind"] == number]
        if rows_of_kind:
            by_kind[kind] = _numbers(rows_of_kind, resamples, confidence)
    return {
        **_numbers(rows, resamples, confidence),
        **changes,
        "by_kind": by_kind,
    }


def _numbers(rows: Rows, resamples: int, confidence: float) -> dict[str, Any]:
    numbers: dict[str, Any] = {"episodes": len(rows)}
    for key in _MEASURED:
        values = np.array([row[key] for row in rows])
        numbers[key] = asdict(measures.mean(key, values, resamples, confidence))
    return numbers


def write(folder: str | os.PathLike[str], summary: Mapping[str, Any]) -> None:
    """Writes tests.json, tests.csv and table.md."""
    atomic_write_json(Path(folder) / SUMMARY, summary)
    # Column -> the key of a test; (column, key of a test, part of its estimate).
    texts = {"test": "name", "what": "what", "environment": "environment", "episodes": "episodes"}
    suffixes = {"value": "", "low": "_low", "high": "_high"}
    numbers = [
        (f"{key}{suffix}", key, part) for key in _ESTIMATED for part, suffix in suffixes.items()
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*texts, *(column for column, _, _ in numbers)])
    for test in summary["tests"]:
        row = [test[key] for key in texts.values()]
        row += [test[key][part] for _, key, part in numbers]
        writer.writerow(row)
    atomic_write_text(Path(folder) / TABLE, text.getvalue())


def write_returns(folder: str | os.PathLike[str], name: str, rows: Rows) -> None:
    """Writes the returns of a test's episodes in the published tool's format: float64 [episodes],
    by index.
    """
    buffer = io.BytesIO()
    np.save(buffer, np.array([row["return"] for row in rows], np.float64), allow_pickle=False)
    target = Path(folder) / RETURNS
    target.mkdir(exist_ok=True)
    atomic_write_bytes(target / f"{name}.npy", buffer.getvalue())


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns tests.json of a folder of test_language_agent."""
    run_folder.read_config(folder)  # refuses another layout
    summary: dict[str, Any] = read_json(
        Path(folder) / SUMMARY, "the same test_language_agent command writes it again"
    )
    for test in summary["tests"]:
        for key in _ESTIMATED:
            # Bounds that are not there, as of one episode, are null in JSON.
            test[key] = {
                name: math.nan if value is None else value for name, value in test[key].items()
            }
    return summary


def table(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells of the table below `HEADER`; the unchanged task has empty cells of change."""
    rows: list[tuple[str, ...]] = []
    for number, test in enumerate(summary["tests"]):
        success = measures.format_estimate(Estimate(**test["success"]))
        returned = measures.format_estimate(Estimate(**test["return"]))
        length = measures.format_estimate(Estimate(**test["length"]))
        # The unchanged task comes first.
        change = "{value:+.3f} [{low:+.3f}, {high:+.3f}]" if number else ""
        success_change = change.format(**test["success_change"])
        return_change = change.format(**test["return_change"])
        rows.append((test["name"], success, success_change, returned, return_change, length))
    return rows
