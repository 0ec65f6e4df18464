"""Reads published curves from a `motif_results.pkl` without running its code.

The file is a pickled dictionary task -> method -> lists of time steps and mean returns for several
seeds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.metric_files import Curve
from motif_jax.published.pickles import read_file, reading

_STEPS, _RETURNS = ("steps", "timesteps"), ("returns", "mean_returns")


@dataclass(frozen=True)
class PublishedResult:
    """Curves of one method on one task, a curve per seed."""

    task: str
    method: str
    seeds: tuple[Curve, ...]


def read_published(path: str | os.PathLike[str]) -> list[PublishedResult]:
    """Returns every method's curves of a `motif_results.pkl`.

    A method has a pair (steps, returns) or a dictionary of both, each a list over time or over
    seeds and time; or it has a list or dictionary of such pairs, one per seed. Seeds may share
    their steps.

    Raises:
      UserError: the file cannot be read, or has another form; the error says where.
    """
    with reading(Path(path), "a pickle of plain data"):
        data = read_file(Path(path))
    if not isinstance(data, Mapping) or not data:
        raise UserError(
            f"{path}: a dictionary with tasks as keys is expected, found {type(data).__name__}"
        )
    results = []
    for task, methods in data.items():
        if not isinstance(methods, Mapping):
            raise UserError(
                f"{path}: [{task!r}] should be a dictionary with methods as keys, found {type(methods).__name__}"
            )
        for method, entry in methods.items():
            try:
                seeds = _curves(entry)
            except (ValueError, TypeError) as error:
                raise UserError(f"{path}: [{task!r}][{method!r}]: {error}") from None
            results.append(PublishedResult(str(task), str(method), tuple(seeds)))
    return results


def _numbers(value: Any) -> np.ndarray | None:
    """A one-dimensional array if `value` is a list of numbers, else None."""
    if isinstance(value, list | tuple) and all(
        isinstance(number, int | float | np.number) for number in value
    ):
        value = np.asarray(value)
    if (
        isinstance(value, np.ndarray)
        and value.ndim == 1
        and value.size
        and value.dtype.kind in "iuf"
    ):
        return value.astype(np.float64)
    return None


def _rows(value: Any) -> list[np.ndarray] | None:
    """An array per seed if `value` is a list of lists of numbers, or one list of numbers; else
    None.
    """
    single = _numbers(value)
    if single is not None:
        return [single]
    rows = [_numbers(row) for row in value] if isinstance(value, list | tuple | np.ndarray) else []
    return rows if rows and all(row is not None for row in rows) else None  # type: ignore[return-value]


def _pair(entry: Any) -> list[Curve] | None:
    """The curves of (steps, returns), or of a dictionary of both; None if `entry` has another
    form.
    """
    if isinstance(entry, Mapping):
        entry = [
            next((entry[key] for key in keys if key in entry), None) for keys in (_STEPS, _RETURNS)
        ]
    if not isinstance(entry, list | tuple | np.ndarray) or len(entry) != 2:
        return None
    xs = _rows(entry[0])
    ys = _rows(entry[1])
    if xs is None or ys is None:
        return None
    # A falling second row means two seeds with a pair each, since steps never fall.
    if len(xs) == len(ys) == 2 and (np.array_equal(xs[0], ys[0]) or (np.diff(xs[1]) < 0).any()):
        return None
    xs = xs * len(ys) if len(xs) == 1 else xs
    if [len(x) for x in xs] != [len(y) for y in ys]:
        lengths = f"{[len(x) for x in xs]} steps, {[len(y) for y in ys]} returns"
        raise ValueError(f"steps and returns do not fit together: {lengths}")
    orders = [np.argsort(x, kind="stable") for x in xs]
    return [Curve(x[order], y[order]) for x, y, order in zip(xs, ys, orders, strict=True)]


def _curves(entry: Any) -> list[Curve]:
    """The curves of a method, in order. Raises ValueError: there are none."""
    pair = _pair(entry)
    if pair is not None:
        return pair
    parts = list(entry.values()) if isinstance(entry, Mapping) else entry
    curves: list[Curve] = []
    for part in parts if isinstance(parts, list | tuple | np.ndarray) else ():
        pair = _pair(part)
        if pair is None:
            break
        curves += pair
    # Every part was a pair.
    else:
        if curves:
            return curves
    size = f" of {len(entry)}" if hasattr(entry, "__len__") else ""
    raise ValueError(
        f"found {type(entry).__name__}{size}, expected lists of time steps and of mean returns for each seed"
    )
