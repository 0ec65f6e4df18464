"""Reads results of the published tools without running their code: Motif's curves of
`motif_results.pkl`, GLAM's logs, tests and probes, and logs of ILQL's evaluations.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import metric_files
from motif_jax.core.files import load_array
from motif_jax.core.metric_files import Curve
from motif_jax.envs.babyai_text import catalogue
from motif_jax.published import pickles

_STEPS, _RETURNS = ("steps", "timesteps"), ("returns", "mean_returns")
# GLAM's files.
LOG = "log.csv"
# Measure -> its column in the log.
_COLUMNS = {"return": "return_mean", "success": "success_rate", "length": "num_frames_mean"}
DISTRIBUTIONS = "distrib.csv"
# Actions that GLAM's experiments added to the first six.
_MORE = ("sleep", "do nothing", "think")
# The place of the reward in a step of ILQL's logs.
_REWARD = 2


@dataclass(frozen=True)
class PublishedResult:
    """Curves of one method on one task, a curve per seed."""

    task: str
    method: str
    seeds: tuple[Curve, ...]


def read_published(path: str | os.PathLike[str]) -> list[PublishedResult]:
    """Returns every method's curves of a `motif_results.pkl`, a pickled dictionary task -> method
    -> lists of time steps and mean returns for several seeds.

    A method has a pair (steps, returns) or a dictionary of both, each a list over time or over
    seeds and time; or it has a list or dictionary of such pairs, one per seed. Seeds may share
    their steps.

    Raises ValueError: a method has another form.
    """
    data = pickles.read_file(Path(path))
    results = []
    for task, methods in data.items():
        for method, entry in methods.items():
            results.append(PublishedResult(str(task), str(method), tuple(_curves(entry))))
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


def is_log(folder: str | os.PathLike[str]) -> bool:
    """Whether the folder has a log of GLAM's tool and is not a run of this package."""
    return (Path(folder) / LOG).is_file() and not (Path(folder) / "config.json").exists()


def read_log(folder: str | os.PathLike[str]) -> dict[str, Curve]:
    """The measures of GLAM's log.csv over environment steps."""
    table = metric_files.read_csv(Path(folder) / LOG)
    order = np.argsort(table["frames"], kind="stable")
    steps = table["frames"][order]
    return {
        measure: Curve(steps, table[column][order])
        for measure, column in _COLUMNS.items()
        if column in table
    }


def read_returns(path: str | os.PathLike[str]) -> np.ndarray:
    """The returns of the episodes of one of GLAM's tests, float64 [episodes], of
    return_per_episode/NAME.npy.
    """
    return load_array(path).astype(np.float64).ravel()


def actions_of(name: str) -> tuple[str, ...]:
    """The actions of a run of GLAM's tool by the number in its name (default six); 'action N' after
    the published lists.
    """
    match = re.search(r"_nbr_actions_(\d+)_", f"_{name}_")
    count = int(match[1]) if match else len(catalogue.ACTIONS)
    names = [*catalogue.ACTIONS, *_MORE][:count]
    names += [f"action {number}" for number in range(len(names) + 1, count + 1)]
    return tuple(names)


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Probabilities of actions float64 [..., actions]: the scores if they sum to 1, else their
    softmax.
    """
    are_probabilities = (scores >= 0).all() and np.allclose(scores.sum(axis=-1), 1, atol=1e-3)
    powers = scores if are_probabilities else np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def read_distributions(path: str | os.PathLike[str], actions: int) -> np.ndarray:
    """Reads GLAM's `distrib.csv`, an agent's action scores on probes before each update, float64
    [updates, probes, actions]: probabilities in files of the first release, raw scores in later
    ones.
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file) if row]
    return np.array(rows, np.float64).reshape(len(rows), -1, actions)


@dataclass(frozen=True)
class EvaluationLog:
    """What `distill_policy_eval` computes: returns and, as logged, entropies (or none), float64
    [episodes].
    """

    returns: np.ndarray
    entropies: np.ndarray

    def in_words(self) -> str:
        """The means with their standard errors, such as '100 episodes, return -1.8 +- 0.1'."""
        parts = [f"{len(self.returns)} episodes"]
        for name, values in (("return", self.returns), ("entropy", self.entropies)):
            if len(values):
                error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
                parts.append(f"{name} {values.mean():.4f} +- {error:.4f}")
        return ", ".join(parts)


def read_evaluation_log(path: str | os.PathLike[str]) -> EvaluationLog:
    """Reads the log of an ILQL evaluation, as `ilql.evaluation.published_log` writes it.

    A log is a pickle {all_logs, eval_dump {results, entropies, ...}, config}. `results` has an item
    per episode, whose second entry is a list of steps (observation, action, reward, end).
    `entropies` has a number per episode, or one for each of its tokens.
    """
    dump = pickles.read_file(Path(path))["eval_dump"]
    returns = [sum(float(step[_REWARD]) for step in result[1]) for result in dump["results"]]
    entropies = [float(np.sum(value)) for value in dump.get("entropies", ())]
    return EvaluationLog(np.array(returns), np.array(entropies))
