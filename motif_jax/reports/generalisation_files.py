"""Files of generalisation tests: each test's numbers and change, and arrays of returns in the published layout."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_bytes, atomic_write_json, atomic_write_text, read_json
from motif_jax.display import measures
from motif_jax.display.statistics import Difference, Estimate, difference, mean_of, rate_difference

SUMMARY = "tests.json"
TABLE = "tests.csv"
FOLDER = "tests"  # a folder of episodes for each test
RETURNS = "return_per_episode"  # the published layout: an array of returns for each test
HEADER = ("test", "success", "change", "return", "change of return", "length")
_MEASURED = ("success", "return", "length")
_ANEW = "the same test_language_agent command writes it again"
Rows = Sequence[Mapping[str, Any]]


def summarise(
    rows: Rows, base: Rows, kinds: Sequence[str], resamples: int, confidence: float
) -> dict[str, Any]:
    """Summarises a test's `rows`; `base` are the rows of the unchanged task with the same seeds.

    Returns:
      `episodes`; success, return and length as {value, low, high}; `success_change` and `return_change` against `base` as
      {value, low, high, pairs}; `by_kind`: kind of task (of `kinds`) -> the same without changes.
    """
    one, two = (np.array([row["success"] for row in some]) for some in (rows, base))
    earned, before = (np.array([row["return"] for row in some]) for some in (rows, base))
    parted = {kind: [row for row in rows if row["kind"] == place] for place, kind in enumerate(kinds)}
    return {
        **_numbers(rows, resamples, confidence),
        "success_change": asdict(rate_difference(one, two, True, confidence)),
        "return_change": asdict(difference([(earned, before, True)], resamples, confidence)),
        "by_kind": {kind: _numbers(part, resamples, confidence) for kind, part in parted.items() if part},
    }


def _numbers(rows: Rows, resamples: int, confidence: float) -> dict[str, Any]:
    numbers = {key: [row[key] for row in rows] for key in _MEASURED}
    means = {key: mean_of(of, key == "success", resamples, confidence) for key, of in numbers.items()}
    return {"episodes": len(rows), **{key: asdict(mean) for key, mean in means.items()}}


def write(folder: str | os.PathLike[str], summary: Mapping[str, Any]) -> None:
    """Writes tests.json, tests.csv and table.md."""
    atomic_write_json(Path(folder) / SUMMARY, summary)
    names = {"test": "name", "what": "what", "environment": "environment", "episodes": "episodes"}
    bounds = {"": "value", "_low": "low", "_high": "high"}
    numbers = [(key, *of) for key in (*_MEASURED, "success_change", "return_change") for of in bounds.items()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *(f"{key}{suffix}" for key, suffix, _ in numbers)])
    for test in summary["tests"]:
        own = [test[name] for name in names.values()]
        writer.writerow([*own, *(test[key][part] for key, _, part in numbers)])
    atomic_write_text(Path(folder) / TABLE, text.getvalue())


def write_returns(folder: str | os.PathLike[str], name: str, rows: Rows) -> None:
    """Writes the returns of a test's episodes in the published tool's format: float64 [episodes], by index."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([row["return"] for row in rows], np.float64), allow_pickle=False)
    target = Path(folder) / RETURNS
    target.mkdir(exist_ok=True)
    atomic_write_bytes(target / f"{name}.npy", buffer.getvalue())


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns tests.json of a folder of test_language_agent. Raises UserError: the file is missing or damaged."""
    path = Path(folder) / SUMMARY
    if not path.exists():
        raise UserError(f"{folder} holds no tests: it has no {SUMMARY}; run test_language_agent there")
    summary = read_json(path, _ANEW, keys=("player", "base", "episodes", "confidence", "left_out", "tests"))
    try:
        for test in summary["tests"]:
            for key in (*_MEASURED, "success_change", "return_change"):
                (Estimate if key in _MEASURED else Difference)(**test[key])
                if not all(isinstance(of, int | float) and abs(of) < 1e15 for of in test[key].values()):
                    raise ValueError(f"{key} has no numbers")
            if not (isinstance(test["name"], str) and isinstance(test["what"], str)):
                raise ValueError("a test's name is no text")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}): {_ANEW}") from None
    return summary


def table(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells of the table below `HEADER`; the unchanged task has empty cells of change."""
    rows: list[tuple[str, ...]] = []
    for test in summary["tests"]:
        success, earned, length = (measures.format_estimate(Estimate(**test[key])) for key in _MEASURED)
        signed = "{value:+.3f} [{low:+.3f}, {high:+.3f}]" if rows else ""
        changes = [signed.format(**test[key]) for key in ("success_change", "return_change")]
        rows.append((test["name"], success, changes[0], earned, changes[1], length))
    return rows
