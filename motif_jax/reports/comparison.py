"""Several methods over several runs, seeds and tasks, after Agarwal et al. 2021 ("Deep reinforcement learning at the
edge of the statistical precipice"), computed by rliable.

Scores are [runs, tasks]: one number a run and task, the mean of its evaluated episodes. Intervals are stratified
bootstrap intervals over runs; with one run there is none (NaN).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from motif_jax.reports.charts import Series
from motif_jax.reports.statistics import Estimate, bootstrap, interquartile_mean
from motif_jax.support.curves import Curve
from motif_jax.support.errors import UserError

RESAMPLES = 2000
PROFILE_POINTS = 61
# The bands of performance profiles take longest, and need no more.
PROFILE_RESAMPLES = 500
CURVE_RESAMPLES = 500


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
      resamples, profile_resamples: of the bootstrap, and of that of the profiles.
    """

    scores: Scores
    resamples: int = RESAMPLES
    profile_resamples: int = PROFILE_RESAMPLES
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
            raise UserError(
                f"config.methods: {method} needs equally many runs of every task, it has {counts}"
            )
        by_method[method] = np.array(columns, np.float64).T
    return Scores(tasks, by_method, unit)


def normalise(scores: Scores, zero: str, one: str) -> Scores:
    """Rescales every task so that the mean of method `zero` is 0 and that of method `one` is 1.

    Raises:
      UserError: there is no such method, or both means are equal on a task.
    """
    for key, name in (("normalise_zero", zero), ("normalise_one", one)):
        if name not in scores.by_method:
            have = ", ".join(scores.by_method)
            raise UserError(f"config.{key}='{name}': must be a method with evaluations: {have}")
    low, high = scores.by_method[zero].mean(0), scores.by_method[one].mean(0)
    if (low == high).any():
        same = [task for task, a, b in zip(scores.tasks, low, high, strict=True) if a == b]
        raise UserError(
            f"config.normalise_one='{one}': must have other means than normalise_zero='{zero}' to set the scale; on "
            f"{', '.join(same)} they are equal"
        )
    rescaled = {method: (values - low) / (high - low) for method, values in scores.by_method.items()}
    return Scores(scores.tasks, rescaled, f"0: {zero}, 1: {one}")


def compare(scores: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Computes everything; repeatable: the draws depend on `seed` alone."""
    from rliable import library, metrics

    result = Comparison(scores, resamples, min(resamples, PROFILE_RESAMPLES))
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
            method: _estimate(points[method][row], intervals[method][:, row], len(values))
            for method, values in scores.by_method.items()
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
            fewest = min(len(scores.by_method[a]), len(scores.by_method[b]))
            result.improvement[a, b] = _estimate(points[name], np.ravel(intervals[name]), fewest)
    result.profiles = _profiles(scores, result.profile_resamples, library)
    for column, task in enumerate(scores.tasks):
        result.by_task[task] = {}
        for method, values in scores.by_method.items():
            mean = bootstrap(values[:, column], [lambda v: v.mean(-1)], resamples, seed=seed)[0]
            result.by_task[task][method] = _estimate(mean.value, (mean.low, mean.high), len(values))


def _estimate(value: float, interval: Sequence[float] | np.ndarray, runs: int) -> Estimate:
    """An estimate over `runs` runs: a single one says nothing of how far others would lie."""
    low, high = map(float, interval) if runs > 1 else (math.nan, math.nan)
    return Estimate(float(value), low, high)


def _profiles(scores: Scores, resamples: int, library: Any) -> list[Series]:
    everything = np.concatenate([values.ravel() for values in scores.by_method.values()])
    low, high = float(everything.min()), float(everything.max())
    margin = 0.05 * (high - low) or 0.5
    thresholds = np.linspace(low - margin, high + margin, PROFILE_POINTS)
    shares, intervals = library.create_performance_profile(dict(scores.by_method), thresholds, reps=resamples)
    lines = []
    for method, values in scores.by_method.items():
        band = intervals[method] if len(values) > 1 else (None, None)
        lines.append(Series(method, thresholds, np.asarray(shares[method]), *band))
    return lines


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
        estimate = bootstrap(rows[:, column], [interquartile_mean], resamples=CURVE_RESAMPLES)[0]
        value[column], low[column], high[column] = estimate.value, estimate.low, estimate.high
    return Series(shown, x, value, low if len(seeds) > 1 else None, high if len(seeds) > 1 else None, dashed)


def as_json(result: Comparison) -> dict[str, Any]:
    """Returns the comparison as plain data; bounds of an interval that there is not are None."""

    def plain(estimate: Estimate) -> Mapping[str, float | None]:
        numbers = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        return {name: number if math.isfinite(number) else None for name, number in numbers.items()}

    scores = result.scores
    return {
        "tasks": list(scores.tasks),
        "unit": scores.unit,
        "resamples": result.resamples,
        "profile_resamples": result.profile_resamples,
        "runs": {method: values.shape[0] for method, values in scores.by_method.items()},
        "scores": {method: values.tolist() for method, values in scores.by_method.items()},
        "aggregates": {k: {m: plain(e) for m, e in v.items()} for k, v in result.aggregates.items()},
        "improvement": [{"better": a, "other": b, **plain(e)} for (a, b), e in result.improvement.items()],
        "by_task": {task: {m: plain(e) for m, e in v.items()} for task, v in result.by_task.items()},
    }
