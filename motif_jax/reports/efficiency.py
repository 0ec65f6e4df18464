"""Computes sample efficiency, the mean of a smoothed learning curve up to a step (Carta et al.
2023).

For success rates it is 1 if the agent succeeds from the first step on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.metric_files import Curve
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.display.statistics import Estimate, mean_of
from motif_jax.reports.smoothing import smooth

_POINTS = 200


class Learned(NamedTuple):
    """One training, and its curve over environment steps."""

    method: str
    task: str
    curve: Curve


def end_of(runs: Sequence[Learned], steps: int | None) -> float:
    """The last step of the comparison: `steps`, or the end of the shortest run. Raises UserError:
    no run, or not all, reach it.
    """
    shortest = min(float(run.curve.x[-1]) for run in runs)
    if steps is None:
        return shortest
    allowed = f"at most {shortest:.0f}, where the shortest run ends"
    checks.require(steps <= shortest, "efficiency_steps", steps, allowed)
    first_steps = []
    for run in runs:
        finite_steps = run.curve.x[np.isfinite(run.curve.y)]
        if len(finite_steps):
            first_steps.append(float(finite_steps[0]))
    earliest = min(first_steps, default=0.0)
    allowed = f"at least {earliest:.0f}, where the first curve begins"
    checks.require(steps >= earliest, "efficiency_steps", steps, allowed)
    return float(steps)


def efficiency(curve: Curve, end: float) -> float:
    """The mean of a smoothed curve over the steps up to `end`; NaN without a value there."""
    before_end = curve.x <= end
    smoothed = smooth(Curve(curve.x[before_end], curve.y[before_end]), band=False)
    if not len(smoothed.x):
        return math.nan
    # Of values at one step, where several episodes end at once, the interpolation would take the
    # first and the last.
    x, step_index = np.unique(smoothed.x, return_inverse=True)
    mean = np.bincount(step_index, smoothed.mean) / np.bincount(step_index)
    # Means of stretches lie unevenly: the average over steps, not over stretches, is meant.
    steps = np.linspace(0.0, end, _POINTS)
    return float(np.interp(steps, x, mean).mean())


def _estimate(runs: Sequence[Learned], end: float) -> tuple[int, Estimate]:
    """How many runs have an efficiency up to `end`, and their mean with its 95 % interval, which
    one run does not have.
    """
    efficiencies = [efficiency(run.curve, end) for run in runs]
    values = [value for value in efficiencies if np.isfinite(value)]
    if not values:
        return 0, Estimate(math.nan, math.nan, math.nan)
    if len(values) == 1:
        return 1, Estimate(values[0], math.nan, math.nan)
    return len(values), mean_of(values)


def table(
    runs: Sequence[Learned], steps: int | None
) -> list[tuple[str, str, int, float, Estimate]]:
    """Rows (task, method, runs, end, efficiency), each task up to its `end_of`; runs without a
    value there do not count.
    """
    rows = []
    for task in dict.fromkeys(run.task for run in runs):
        runs_of_task = [run for run in runs if run.task == task]
        end = end_of(runs_of_task, steps)
        for method in dict.fromkeys(run.method for run in runs_of_task):
            count, mean = _estimate([run for run in runs_of_task if run.method == method], end)
            rows.append((task, method, count, end, mean))
    return rows


def section(runs: Sequence[Learned], steps: int | None, label: str) -> Section:
    """Efficiency by task and method."""
    rows = [
        (task, method, f"{count}", f"{end:,.0f}", estimate_cell(mean))
        for task, method, count, end, mean in table(runs, steps)
    ]
    header = ("task", "method", "runs", "up to step", "efficiency")
    parts = [Table("efficiency-table", header, rows, in_files=True)]
    note = (
        f"Mean over the steps of the smoothed curve of {label}, up to the end of a task's shortest run or config.efficiency_steps; "
        "brackets: 95 % bootstrap interval over runs, which one run does not have."
    )
    return Section("Sample efficiency", "efficiency", parts, note)
