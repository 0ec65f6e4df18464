"""Compares methods over runs, seeds and tasks, after Agarwal et al. 2021 ("Deep reinforcement
learning at the edge of the statistical precipice"), computed by rliable.

Scores are [runs, tasks]: the mean over evaluated episodes of a run on a task. Intervals over runs
come from a stratified bootstrap that draws runs within their task; with one run they are NaN.
Differences also have an interval over games, paired where both methods played the same games: it
describes only these runs.
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
from motif_jax.display.measures import is_rate
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
    """Scores of all methods, float64 [runs, tasks]; `games`: the games of each task, of several
    runs with their mean, {} if unknown; `unit` is '' where the scores are not scaled.
    """

    tasks: tuple[str, ...]
    by_method: dict[str, np.ndarray]
    games: dict[str, list[Games]]
    unit: str


@dataclass(frozen=True)
class Contrast:
    """The difference of two methods' means: over runs, that of new trainings; over games, of new
    games of these runs.
    """

    task: str
    first: str
    other: str
    over_runs: Estimate
    over_games: Difference | None


@dataclass
class Comparison:
    """The results of a comparison in the measure `key`; contrasts over all tasks come first, an
    estimate is NaN where a method has too few scores.

    `aggregates`: statistic -> method -> estimate; `improvement`: (better, other) -> probability
    that a run of the first beats one of the second; `by_task`: task -> method -> mean over runs.
    """

    scores: MethodScores
    key: str = ""
    resamples: int = RESAMPLES
    profile_resamples: int = PROFILE_RESAMPLES
    aggregates: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    improvement: dict[tuple[str, str], Estimate] = field(default_factory=dict)
    contrasts: list[Contrast] = field(default_factory=list)
    profiles: list[Series] = field(default_factory=list)
    by_task: dict[str, dict[str, Estimate]] = field(default_factory=dict)


def collect_scores(entries: Sequence[RunScore], unit: str) -> MethodScores:
    """Scores of single runs as [runs, tasks]. Raises UserError: a method has no run of a task, or
    unequal numbers of runs.
    """
    tasks = tuple(dict.fromkeys(entry.task for entry in entries))
    by_method: dict[str, np.ndarray] = {}
    games: dict[str, list[Games]] = {}
    for method in dict.fromkeys(entry.method for entry in entries):
        runs_of_task = {
            task: [entry for entry in entries if entry.method == method and entry.task == task]
            for task in tasks
        }
        counts = {task: len(runs) for task, runs in runs_of_task.items()}
        if len(set(counts.values())) != 1:
            raise UserError(
                f"config.methods: {method} must have the same number of runs of every task, it has {counts}"
            )
        scores = [[run.score for run in runs] for runs in runs_of_task.values()]
        # [tasks, runs] to [runs, tasks].
        by_method[method] = np.array(scores, np.float64).T
        games[method] = [
            _mean_of_games([run.games for run in runs]) for runs in runs_of_task.values()
        ]
    return MethodScores(tasks, by_method, games, unit)


def _mean_of_games(runs: Sequence[Games]) -> Games:
    games = dict.fromkeys(game for run in runs for game in run)
    return {game: float(np.mean([run[game] for run in runs if game in run])) for game in games}


def normalise(scores: MethodScores, zero: str, one: str) -> MethodScores:
    """Rescales tasks so that the mean of `zero` is 0 and that of `one` is 1. Raises UserError:
    unknown methods, or equal means.
    """
    for key, name in (("normalise_zero", zero), ("normalise_one", one)):
        if name not in scores.by_method:
            have = ", ".join(scores.by_method)
            raise UserError(f"config.{key}='{name}': must be a method with evaluations: {have}")
    low = scores.by_method[zero].mean(0)
    high = scores.by_method[one].mean(0)
    if (low == high).any():
        equal_tasks = [task for task, a, b in zip(scores.tasks, low, high, strict=True) if a == b]
        raise UserError(
            f"config.normalise_one='{one}': must have other means than normalise_zero='{zero}' to set the scale; on "
            f"{', '.join(equal_tasks)} they are equal"
        )
    rescaled = {
        method: (values - low) / (high - low) for method, values in scores.by_method.items()
    }
    games: dict[str, list[Games]] = {}
    for method, games_of_tasks in scores.games.items():
        games[method] = [
            {
                game: (value - task_low) / (task_high - task_low)
                for game, value in games_of_task.items()
            }
            for games_of_task, task_low, task_high in zip(games_of_tasks, low, high, strict=True)
        ]
    return MethodScores(scores.tasks, rescaled, games, f"0: {zero}, 1: {one}")


def compare(
    scores: MethodScores, resamples: int = RESAMPLES, seed: int = 0, key: str = ""
) -> Comparison:
    """Compares the methods in the measure `key`; the draws depend on `seed` alone."""
    # rliable takes a second to import.
    from rliable import library, metrics

    result = Comparison(scores, key, resamples, min(resamples, PROFILE_RESAMPLES))
    with statistics.repeatable_rliable(seed):
        _add_aggregates(result, library, metrics)
        _add_contrasts(result, library, metrics, seed)
        result.profiles = _profiles(scores, result.profile_resamples, library)
    for column, task in enumerate(scores.tasks):
        result.by_task[task] = {}
        for method, values in scores.by_method.items():
            mean = statistics.mean_of(values[:, column], resamples=resamples, seed=seed)
            result.by_task[task][method] = _estimate(mean.value, (mean.low, mean.high), len(values))
    return result


def _add_aggregates(result: Comparison, library: Any, metrics: Any) -> None:
    """Adds interquartile mean, mean and median; the median is over runs of a single task, else over
    the tasks' means.
    """
    scores = result.scores
    median_name = "median of task means"
    median = metrics.aggregate_median
    # rliable's median is one of task means: of one task that is the mean of its runs.
    if len(scores.tasks) == 1:
        median_name = "median"
        median = np.median
    iqm_name = "interquartile mean"

    def averages(values: np.ndarray) -> np.ndarray:
        return np.array(
            [metrics.aggregate_iqm(values), metrics.aggregate_mean(values), median(values)]
        )

    points, intervals = library.get_interval_estimates(
        scores.by_method, averages, reps=result.resamples
    )
    # Of each method: points [statistics], intervals [2, statistics].
    for row, name in enumerate((iqm_name, "mean", median_name)):
        result.aggregates[name] = {
            method: _estimate(points[method][row], intervals[method][:, row], len(values))
            for method, values in scores.by_method.items()
        }
    few = [method for method, values in scores.by_method.items() if values.size < IQM_SCORES]
    for method in few:
        result.aggregates[iqm_name][method] = Estimate(math.nan, math.nan, math.nan)
    if len(few) == len(scores.by_method):
        del result.aggregates[iqm_name]


def _add_contrasts(result: Comparison, library: Any, metrics: Any, seed: int) -> None:
    """Adds the probability of improvement and the differences of all pairs of methods, all from the
    same draws.
    """
    scores = result.scores
    tasks = scores.tasks

    def contrasts(first: np.ndarray, other: np.ndarray) -> np.ndarray:
        by_task = first.mean(0) - other.mean(0)
        over_all = [by_task.mean()] if len(by_task) > 1 else []
        return np.array([metrics.probability_of_improvement(first, other), *over_all, *by_task])

    pairs = list(combinations(scores.by_method, 2))
    names = [f"{first},{other}" for first, other in pairs]
    # rliable calls `contrasts` with both arrays of a pair.
    values_of_pair = {
        name: (scores.by_method[first], scores.by_method[other])
        for name, (first, other) in zip(names, pairs, strict=True)
    }
    points, bounds = library.get_interval_estimates(
        values_of_pair, contrasts, reps=result.resamples
    )
    estimates: dict[str, list[Estimate]] = {}
    for name, (first_values, other_values) in values_of_pair.items():
        runs = min(len(first_values), len(other_values))
        estimates[name] = [
            _estimate(value, bounds[name][:, row], runs) for row, value in enumerate(points[name])
        ]
    result.improvement = {pair: estimates[name][0] for pair, name in zip(pairs, names, strict=True)}

    # In the order of `contrasts`, after the probability.
    rows = [(task, [column]) for column, task in enumerate(tasks)]
    if len(tasks) > 1:
        rows.insert(0, (ALL_TASKS, list(range(len(tasks)))))
    for row, (task, columns) in enumerate(rows, start=1):
        for (first, other), name in zip(pairs, names, strict=True):
            over_games = _over_games(result, first, other, columns, seed)
            result.contrasts.append(Contrast(task, first, other, estimates[name][row], over_games))


def _over_games(
    result: Comparison, first: str, other: str, columns: Sequence[int], seed: int
) -> Difference | None:
    """The difference over the games of some tasks; None where those of a side are unknown.

    Of a rate on one task it is Newcombe's, as in reports: the bootstrap would say of 40 wins
    against none that nothing else can happen.
    """
    scores = result.scores
    strata = []
    for column in columns:
        games_of_first = scores.games[first][column]
        games_of_other = scores.games[other][column]
        if not games_of_first or not games_of_other:
            return None
        strata.append(statistics.matched(games_of_first, games_of_other))
    if len(strata) == 1 and not scores.unit:
        numbers, other_numbers, paired = strata[0]
        if is_rate(result.key, np.concatenate([numbers, other_numbers])):
            return statistics.rate_difference(numbers, other_numbers, paired)
    return statistics.difference(strata, result.resamples, seed=seed)


def _estimate(value: float, interval: Sequence[float] | np.ndarray, runs: int) -> Estimate:
    """The estimate over `runs`; one run has no interval."""
    if runs == 1:
        return Estimate(float(value), math.nan, math.nan)
    low, high = interval
    return Estimate(float(value), float(low), float(high))


def _profiles(scores: MethodScores, resamples: int, library: Any) -> list[Series]:
    """The share of runs above each of `PROFILE_POINTS` thresholds, a line per method."""
    all_scores = np.concatenate([values.ravel() for values in scores.by_method.values()])
    low = float(all_scores.min())
    high = float(all_scores.max())
    # Scores that are all equal have no range.
    margin = 0.05 * (high - low) or 0.5
    thresholds = np.linspace(low - margin, high + margin, PROFILE_POINTS)
    shares, intervals = library.create_performance_profile(
        dict(scores.by_method), thresholds, reps=resamples
    )
    lines = []
    for method, values in scores.by_method.items():
        share = np.asarray(shares[method])
        if len(values) > 1:
            lines.append(Series(method, thresholds, share, *intervals[method]))
        else:
            lines.append(Series(method, thresholds, share))
    return lines


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
        "aggregates": _plain_estimates(result.aggregates),
        "differences": [asdict(contrast) for contrast in result.contrasts],
        "improvement": [
            {"better": better, "other": other, **asdict(chance)}
            for (better, other), chance in result.improvement.items()
        ],
        "by_task": _plain_estimates(result.by_task),
    }
    return finite(plain)


def _plain_estimates(estimates: dict[str, dict[str, Estimate]]) -> dict[str, dict[str, Any]]:
    return {
        name: {method: asdict(estimate) for method, estimate in by_method.items()}
        for name, by_method in estimates.items()
    }
