"""Several methods over several runs, seeds and tasks, after Agarwal et al. 2021 ("Deep reinforcement learning at the
edge of the statistical precipice"), computed by rliable.

Scores are [runs, tasks]: one number a run and task, the mean of its evaluated episodes. Intervals are stratified
bootstrap intervals over runs; with one run there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from motif_jax.reports.charts import Series
from motif_jax.reports.curves import Curve
from motif_jax.reports.statistics import Estimate, bootstrap, interquartile_mean
from motif_jax.support.errors import UserError

RESAMPLES = 2000
PROFILE_POINTS = 61


@dataclass(frozen=True)
class Scores:
    """Scores of all methods.

    Attributes:
      tasks: names.
      by_method: method -> float64 [runs, tasks].
      unit: what the numbers are.
    """

    tasks: tuple[str, ...]
    by_method: dict[str, np.ndarray]
    unit: str


@dataclass
class Comparison:
    """What is said of the methods.

    Attributes:
      scores: the input.
      aggregates: statistic -> method -> estimate; statistics are 'interquartile mean', 'mean', 'median'.
      improvement: (better, other) -> probability that a run of the first beats one of the second.
      profile_x: score thresholds [points]; profiles: method -> Series of the share of runs above each.
      by_task: task -> method -> estimate of the mean over runs.
    """

    scores: Scores
    aggregates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    improvement: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    profiles: list[Series] = field(default_factory=list)
    by_task: dict[str, dict[str, Estimate]] = field(default_factory=dict)


def collect_scores(entries: Sequence[tuple[str, str, float]], unit: str) -> Scores:
    """Arranges (method, task, score) of single runs as [runs, tasks].

    Raises:
      UserError: a method has no run of a task, or not equally many of all.
    """
    tasks = tuple(dict.fromkeys(task for _, task, _ in entries))
    by_method = {}
    for method in dict.fromkeys(method for method, _, _ in entries):
        columns = [[score for m, t, score in entries if m == method and t == task] for task in tasks]
        counts = {task: len(column) for task, column in zip(tasks, columns, strict=True)}
        if len(set(counts.values())) != 1:
            raise UserError(f"method {method} needs equally many runs of every task, it has {counts}")
        by_method[method] = np.array(columns, np.float64).T
    return Scores(tasks, by_method, unit)


def normalise(scores: Scores, zero: str, one: str) -> Scores:
    """Rescales every task so that the mean of method `zero` is 0 and that of method `one` is 1.

    Raises:
      UserError: there is no such method, or both means are equal on a task.
    """
    for name in (zero, one):
        if name not in scores.by_method:
            raise UserError(
                f"there is no method {name!r} to normalise by; there are {', '.join(scores.by_method)}"
            )
    low, high = scores.by_method[zero].mean(0), scores.by_method[one].mean(0)
    if (low == high).any():
        same = [task for task, a, b in zip(scores.tasks, low, high, strict=True) if a == b]
        raise UserError(f"{zero} and {one} have equal means on {', '.join(same)}: they cannot set the scale")
    rescaled = {method: (values - low) / (high - low) for method, values in scores.by_method.items()}
    return Scores(scores.tasks, rescaled, f"0: {zero}, 1: {one}")


def compare(scores: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Computes everything; repeatable: the draws depend on `seed` alone."""
    from rliable import library, metrics

    result = Comparison(scores)
    # rliable draws from numpy's global generator whatever random state it is given.
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        _fill(result, library, metrics, resamples, seed)
    finally:
        np.random.set_state(before)  # noqa: NPY002
    return result


def _fill(result: Comparison, library: Any, metrics: Any, resamples: int, seed: int) -> None:
    scores = result.scores

    def statistics(values: np.ndarray) -> np.ndarray:
        return np.array(
            [metrics.aggregate_iqm(values), metrics.aggregate_mean(values), metrics.aggregate_median(values)]
        )

    names = ("interquartile mean", "mean", "median")
    points, intervals = library.get_interval_estimates(dict(scores.by_method), statistics, reps=resamples)
    for row, name in enumerate(names):
        result.aggregates[name] = {
            method: Estimate(float(points[method][row]), *map(float, intervals[method][:, row]))
            for method in scores.by_method
        }
    pairs = {
        f"{a},{b}": (scores.by_method[a], scores.by_method[b]) for a, b in combinations(scores.by_method, 2)
    }
    if pairs:
        points, intervals = library.get_interval_estimates(
            pairs,
            metrics.probability_of_improvement,
            reps=resamples,
            random_state=np.random.RandomState(seed),
        )
        for (a, b), name in zip(combinations(scores.by_method, 2), pairs, strict=True):
            low, high = map(float, np.ravel(intervals[name]))
            result.improvement[a, b] = Estimate(float(points[name]), low, high)
    result.profiles = _profiles(scores, resamples, library)
    for column, task in enumerate(scores.tasks):
        result.by_task[task] = {
            method: bootstrap(values[:, column], [lambda v: v.mean(-1)], resamples, seed=seed)[0]
            for method, values in scores.by_method.items()
        }


def _profiles(scores: Scores, resamples: int, library: Any) -> list[Series]:
    everything = np.concatenate([values.ravel() for values in scores.by_method.values()])
    low, high = float(everything.min()), float(everything.max())
    margin = 0.05 * (high - low) or 0.5
    thresholds = np.linspace(low - margin, high + margin, PROFILE_POINTS)
    shares, intervals = library.create_performance_profile(
        dict(scores.by_method), thresholds, reps=min(resamples, 500)
    )
    return [
        Series(method, thresholds, np.asarray(shares[method]), intervals[method][0], intervals[method][1])
        for method in scores.by_method
    ]


def learning_curve(name: str, seeds: Sequence[Curve], points: int = 60, dashed: bool = False) -> Series:
    """Interquartile mean over seeds of curves, each averaged over equal stretches of steps, with its interval.

    Args:
      name: in the legend; the number of seeds is added.
      seeds: one curve per seed.
      points: stretches.
      dashed: for published results.
    """
    shown = f"{name} (n = {len(seeds)})"
    start = min(float(curve.x.min()) for curve in seeds)
    # Beyond the shortest run the mean would be over other seeds than before.
    stop = min(float(curve.x.max()) for curve in seeds)
    points = max(1, min(points, *(len(curve) for curve in seeds)))
    edges = np.linspace(start, stop, points + 1)
    rows = np.full((len(seeds), points), np.nan)
    for row, curve in enumerate(seeds):
        good = np.isfinite(curve.y) & (curve.x <= stop)
        place = np.clip(np.searchsorted(edges, curve.x[good], "right") - 1, 0, points - 1)
        count = np.bincount(place, minlength=points)
        total = np.bincount(place, curve.y[good], minlength=points)
        rows[row, count > 0] = total[count > 0] / count[count > 0]
    x = (edges[:-1] + edges[1:]) / 2
    whole = np.isfinite(rows).all(0)
    value, low, high = (np.full(points, np.nan) for _ in range(3))
    for column in np.flatnonzero(whole):
        estimate = bootstrap(rows[:, column], [interquartile_mean], resamples=500)[0]
        value[column], low[column], high[column] = estimate.value, estimate.low, estimate.high
    return Series(shown, x, value, low if len(seeds) > 1 else None, high if len(seeds) > 1 else None, dashed)


def as_json(result: Comparison) -> dict[str, Any]:
    """Returns the comparison as plain data."""

    def plain(estimate: Estimate) -> Mapping[str, float]:
        return {"value": estimate.value, "low": estimate.low, "high": estimate.high}

    scores = result.scores
    return {
        "tasks": list(scores.tasks),
        "unit": scores.unit,
        "runs": {method: values.shape[0] for method, values in scores.by_method.items()},
        "scores": {method: values.tolist() for method, values in scores.by_method.items()},
        "aggregates": {k: {m: plain(e) for m, e in v.items()} for k, v in result.aggregates.items()},
        "improvement": [{"better": a, "other": b, **plain(e)} for (a, b), e in result.improvement.items()],
        "by_task": {task: {m: plain(e) for m, e in v.items()} for task, v in result.by_task.items()},
    }
