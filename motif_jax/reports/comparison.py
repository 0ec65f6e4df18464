"""Compares methods over runs, seeds and tasks, after Agarwal et al. 2021 ("Deep reinforcement learning at the edge
of the statistical precipice"), computed by rliable.

Scores are [runs, tasks]: the mean over evaluated episodes of a run on a task. Intervals over runs come from a stratified
bootstrap that draws runs within their task; with one run they are NaN. Differences also have an interval over games,
paired where both methods played the same games: it describes only these runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import finite
from motif_jax.display import statistics
from motif_jax.display.charts import Series
from motif_jax.display.statistics import RESAMPLES, Difference, Estimate, Games

PROFILE_POINTS = 61
# Fewer for the bands of performance profiles, which take longest.
PROFILE_RESAMPLES = 500
# With fewer scores the interquartile mean equals the mean.
IQM_SCORES = 4
ALL_TASKS = "all tasks"


class RunScore(NamedTuple):
    """The score of one run on a task, and the result of each of its games."""

    method: str
    task: str
    score: float
    games: Games


class MethodScores(NamedTuple):
    """Scores of all methods, float64 [runs, tasks]; `games`: the games of each task, of several runs with their mean, {} if unknown."""

    tasks: tuple[str, ...]
    by_method: dict[str, np.ndarray]
    games: dict[str, list[Games]]
    unit: str


@dataclass(frozen=True)
class Contrast:
    """The difference of two methods' means: over runs, that of new trainings; over games, of new games of these runs."""

    task: str
    first: str
    other: str
    over_runs: Estimate
    over_games: Difference | None


@dataclass
class Comparison:
    """The results of a comparison; contrasts over all tasks come first, an estimate is NaN where a method has too few scores.

    `aggregates`: statistic -> method -> estimate; `improvement`: (better, other) -> probability that a run of the first beats one
    of the second; `by_task`: task -> method -> mean over runs.
    """

    scores: MethodScores
    resamples: int = RESAMPLES
    profile_resamples: int = PROFILE_RESAMPLES
    aggregates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    improvement: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    contrasts: list[Contrast] = field(default_factory=list)
    profiles: list[Series] = field(default_factory=list)
    by_task: dict[str, dict[str, Estimate]] = field(default_factory=dict)


def collect_scores(entries: Sequence[RunScore], unit: str) -> MethodScores:
    """Scores of single runs as [runs, tasks]. Raises UserError: a method has no run of a task, or unequal numbers of runs."""
    tasks = tuple(dict.fromkeys(entry.task for entry in entries))
    by_method, games = {}, {}
    for method in dict.fromkeys(entry.method for entry in entries):
        columns = [[e for e in entries if e.method == method and e.task == task] for task in tasks]
        counts = {task: len(column) for task, column in zip(tasks, columns, strict=True)}
        if len(set(counts.values())) != 1:
            raise UserError(
                f"config.methods: {method} must have the same number of runs of every task, it has {counts}"
            )
        by_method[method] = np.array([[e.score for e in column] for column in columns], np.float64).T
        games[method] = [_mean_of_games([e.games for e in column]) for column in columns]
    return MethodScores(tasks, by_method, games, unit)


def _mean_of_games(runs: Sequence[Games]) -> Games:
    games = dict.fromkeys(game for run in runs for game in run)
    return {game: float(np.mean([run[game] for run in runs if game in run])) for game in games}


def normalise(scores: MethodScores, zero: str, one: str) -> MethodScores:
    """Rescales tasks so that the mean of `zero` is 0 and that of `one` is 1. Raises UserError: unknown methods, or equal means."""
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

    def scaled(columns: Sequence[Games]) -> list[Games]:
        scales = zip(columns, low, high, strict=True)
        return [{game: (value - a) / (b - a) for game, value in of.items()} for of, a, b in scales]

    games = {method: scaled(columns) for method, columns in scores.games.items()}
    return MethodScores(scores.tasks, rescaled, games, f"0: {zero}, 1: {one}")


def compare(scores: MethodScores, resamples: int = RESAMPLES, seed: int = 0) -> Comparison:
    """Compares the methods; the draws depend on `seed` alone."""
    from rliable import library, metrics

    result = Comparison(scores, resamples, min(resamples, PROFILE_RESAMPLES))
    with statistics.repeatable_rliable(seed):
        _aggregate(result, library, metrics)
        _contrast(result, library, metrics, seed)
        result.profiles = _profiles(scores, result.profile_resamples, library)
    for column, task in enumerate(scores.tasks):
        result.by_task[task] = {}
        for method, values in scores.by_method.items():
            mean = statistics.mean_of(values[:, column], resamples=resamples, seed=seed)
            result.by_task[task][method] = _estimate(mean.value, (mean.low, mean.high), len(values))
    return result


def _aggregate(result: Comparison, library: Any, metrics: Any) -> None:
    """Adds interquartile mean, mean and median; the median is over runs of a single task, else over the tasks' means."""
    scores, single = result.scores, len(result.scores.tasks) == 1
    middle, median = ("median", np.median) if single else ("median of task means", metrics.aggregate_median)
    names = ("interquartile mean", "mean", middle)

    def averages(values: np.ndarray) -> np.ndarray:
        return np.array([metrics.aggregate_iqm(values), metrics.aggregate_mean(values), median(values)])

    points, intervals = library.get_interval_estimates(scores.by_method, averages, reps=result.resamples)
    for row, name in enumerate(names):
        result.aggregates[name] = {
            method: _estimate(points[method][row], intervals[method][:, row], len(values))
            for method, values in scores.by_method.items()
        }
    few = [method for method, values in scores.by_method.items() if values.size < IQM_SCORES]
    result.aggregates[names[0]] |= dict.fromkeys(few, Estimate(math.nan, math.nan, math.nan))
    if len(few) == len(scores.by_method):
        del result.aggregates[names[0]]


def _contrast(result: Comparison, library: Any, metrics: Any, seed: int) -> None:
    scores = result.scores

    def contrasts(first: np.ndarray, other: np.ndarray) -> np.ndarray:
        by_task = first.mean(0) - other.mean(0)
        over_all = [by_task.mean()] if len(by_task) > 1 else []
        return np.array([metrics.probability_of_improvement(first, other), *over_all, *by_task])

    methods = list(combinations(scores.by_method, 2))
    pairs = {f"{a},{b}": (scores.by_method[a], scores.by_method[b]) for a, b in methods}
    points, bounds = library.get_interval_estimates(pairs, contrasts, reps=result.resamples)
    intervals = {
        name: [
            _estimate(value, bounds[name][:, row], min(map(len, pairs[name])))
            for row, value in enumerate(points[name])
        ]
        for name in pairs
    }
    result.improvement = {two: intervals[name][0] for two, name in zip(methods, pairs, strict=True)}
    rows = [(task, [column]) for column, task in enumerate(scores.tasks)]
    if len(rows) > 1:
        rows.insert(0, (ALL_TASKS, list(range(len(rows)))))
    result.contrasts = [
        Contrast(task, a, b, intervals[name][1 + row], _over_games(result, a, b, columns, seed))
        for row, (task, columns) in enumerate(rows)
        for (a, b), name in zip(methods, pairs, strict=True)
    ]


def _over_games(
    result: Comparison, first: str, other: str, columns: Sequence[int], seed: int
) -> Difference | None:
    games = result.scores.games
    sides = [(games[first][column], games[other][column]) for column in columns]
    if not all(one and two for one, two in sides):
        return None
    pairs = [statistics.matched(one, two) for one, two in sides]
    return statistics.difference(pairs, result.resamples, seed=seed)


def _estimate(value: float, interval: Sequence[float] | np.ndarray, runs: int) -> Estimate:
    return Estimate(float(value), *(map(float, interval) if runs > 1 else (math.nan, math.nan)))


def _profiles(scores: MethodScores, resamples: int, library: Any) -> list[Series]:
    everything = np.concatenate([values.ravel() for values in scores.by_method.values()])
    low, high = float(everything.min()), float(everything.max())
    margin = 0.05 * (high - low) or 0.5
    thresholds = np.linspace(low - margin, high + margin, PROFILE_POINTS)
    shares, intervals = library.create_performance_profile(dict(scores.by_method), thresholds, reps=resamples)
    bands = {m: intervals[m] if len(of) > 1 else (None, None) for m, of in scores.by_method.items()}
    return [Series(method, thresholds, np.asarray(shares[method]), *band) for method, band in bands.items()]


def as_json(result: Comparison) -> dict[str, Any]:
    """The comparison as plain data; missing bounds are None."""
    scores = result.scores
    plain = {
        "tasks": list(scores.tasks),
        "unit": scores.unit,
        "resamples": result.resamples,
        "profile_resamples": result.profile_resamples,
        "runs": {method: len(values) for method, values in scores.by_method.items()},
        "scores": {method: values.tolist() for method, values in scores.by_method.items()},
        "aggregates": {k: {m: asdict(e) for m, e in v.items()} for k, v in result.aggregates.items()},
        "differences": [asdict(contrast) for contrast in result.contrasts],
        "improvement": [{"better": a, "other": b, **asdict(e)} for (a, b), e in result.improvement.items()],
        "by_task": {task: {m: asdict(e) for m, e in v.items()} for task, v in result.by_task.items()},
    }
    return finite(plain)
