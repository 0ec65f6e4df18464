"""Computes sample efficiency, the mean of a smoothed learning curve up to a step (Carta et al.
2023).

For success rates it is 1 if the agent succeeds from the first step on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display.measures import measure, with_unit
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.display.statistics import Estimate, mean_of
from motif_jax.reports.smoothing import smooth

_POINTS = 200


class Learned(NamedTuple):
    """One training, and curves of its episodes' numbers over environment steps, by measure."""

    method: str
    task: str
    curves: Mapping[str, Curve]


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


def _estimate(curves: Sequence[Curve], end: float) -> tuple[int, Estimate]:
    """How many runs have an efficiency up to `end`, and their mean with its 95 % interval, which
    one run does not have.
    """
    efficiencies = [efficiency(curve, end) for curve in curves]
    values = [value for value in efficiencies if np.isfinite(value)]
    if not values:
        return 0, Estimate(math.nan, math.nan, math.nan)
    if len(values) == 1:
        return 1, Estimate(values[0], math.nan, math.nan)
    return len(values), mean_of(values)


def table(runs: Sequence[Learned], key: str) -> list[tuple[str, str, int, float, Estimate]]:
    """Rows (task, method, runs, end, efficiency) of the measure `key`, each task up to the end of
    its shortest run; runs without a value there do not count.
    """
    curves: dict[str, dict[str, list[Curve]]] = {}  # task -> method -> its runs
    for run in runs:
        if key in run.curves:
            curves.setdefault(run.task, {}).setdefault(run.method, []).append(run.curves[key])
    rows = []
    for task, by_method in curves.items():
        end = min(float(curve.x[-1]) for of_method in by_method.values() for curve in of_method)
        for method, of_method in by_method.items():
            count, mean = _estimate(of_method, end)
            rows.append((task, method, count, end, mean))
    return rows


def section(runs: Sequence[Learned], measures: Sequence[str]) -> Section:
    """Efficiency by measure, task and method."""
    parts = []
    for key in measures:
        rows = [
            (task, method, f"{count}", f"{end:,.0f}", estimate_cell(mean))
            for task, method, count, end, mean in table(runs, key)
        ]
        if rows:
            header = ("task", "method", "runs", "up to step", with_unit(measure(key)))
            parts.append(Table(f"efficiency-{key}", header, rows, in_files=True))
    note = (
        "Mean over the steps of the smoothed curve, up to the end of a task's shortest run; brackets: 95 % bootstrap interval over runs, "
        "which one run does not have."
    )
    return Section("Sample efficiency", "efficiency", parts, note)
