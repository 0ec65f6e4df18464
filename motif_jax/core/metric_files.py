"""Reads what trainings write (metrics.jsonl, episodes.jsonl, CSV files) as curves."""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.files import read_json_lines

# Numbers of an episode's row: whether it reached the task's goal, and a number of that name that
# was true and then false within the episode, which says something else.
SUCCESS = "success"
FALLEN_SUCCESS = "info_success"


@dataclass(frozen=True)
class Curve:
    """A number y, NaN where it was not finite, over ascending steps x, float64 [n]."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)


def best_row(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    """Index of the row with the smallest number `name`, the first of equals; 0 where none has
    one.
    """
    numbers = np.array([row[name] for row in rows], float)
    # argmin would take NaN for the smallest.
    return int(np.argmin(np.where(np.isnan(numbers), np.inf, numbers)))


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, Curve]:
    """Turns rows with a step and numbers into one curve per name, ordered by step."""
    xs: dict[str, array] = {}
    ys: dict[str, array] = {}
    for row in rows:
        for name, value in row.items():
            # Texts and lists of a row are no curve; null is a number that was not finite.
            if name not in ("step", "time") and isinstance(value, int | float | None):
                xs.setdefault(name, array("d")).append(row["step"])
                ys.setdefault(name, array("d")).append(np.nan if value is None else value)
    curves: dict[str, Curve] = {}
    for name in xs:
        x = np.array(xs[name])
        y = np.array(ys[name])
        # Several episodes may end at one step, and keep the order in which they ended.
        order = np.argsort(x, kind="stable")
        curves[name] = Curve(x[order], y[order])
    return curves


def read_curves(folder: str | os.PathLike[str]) -> dict[str, Curve]:
    """The curves of metrics.jsonl in a run folder; none without it."""
    return columns(read_json_lines(Path(folder) / "metrics.jsonl", ["step"]))


def read_episodes(folder: str | os.PathLike[str]) -> dict[str, Curve]:
    """The curves of episodes.jsonl in an agent's run folder, a point per finished episode."""
    curves = columns(episode_rows(folder))
    fallen = curves.get(FALLEN_SUCCESS)
    success = curves.get(SUCCESS)
    if fallen is None or success is None:
        return curves
    # The number of one environment: episodes in which it happened not to fall count no successes.
    x = np.concatenate([success.x, fallen.x])
    order = np.argsort(x, kind="stable")
    curves[FALLEN_SUCCESS] = Curve(x[order], np.concatenate([success.y, fallen.y])[order])
    del curves[SUCCESS]
    return curves


def success_falls(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the success of an environment fell in one of these episodes, so that none of theirs
    is a success.
    """
    return any(FALLEN_SUCCESS in row for row in rows)


def without_success(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row, with its success under the name of one that falls."""
    return {FALLEN_SUCCESS if name == SUCCESS else name: value for name, value in row.items()}


def episode_rows(folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yields the lines of episodes.jsonl in an agent's run folder; none without it."""
    return read_json_lines(Path(folder) / "episodes.jsonl", ["step"])


def read_csv(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The columns of a CSV file of numbers, float64; none without it."""
    path = Path(path)
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file, strict=True)
    numbers = [[float(cell) if cell else np.nan for cell in row] for row in rows]
    return dict(zip(header, np.array(numbers).T, strict=True)) if numbers else {}
