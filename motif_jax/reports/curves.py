"""Curves over steps: averaged over stretches of steps, with bands; learning curves over seeds; and
sample efficiency, the mean of a smoothed learning curve up to a step (Carta et al. 2023), which for
success rates is 1 if the agent succeeds from the first step on.

Stretches are joined until each holds enough values, so that curves have no gaps. Bands are
percentile bootstrap intervals of the mean (Wilson's for rates), which never leave the range of the
values; a single value has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from motif_jax.core.metric_files import Curve
from motif_jax.display.charts import Series, short
from motif_jax.display.measures import measure, with_unit
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.display.statistics import Estimate, bootstrap, interquartile_mean, mean_of

# Least values in a stretch with a band, for curves with at least five times as many.
LEAST = 10
RESAMPLES = 500
# A stretch with more values is averaged to this many blocks before the bootstrap.
_BLOCKS = 256
# Points of a curve whose mean is the sample efficiency.
_EFFICIENCY_POINTS = 200


@dataclass(frozen=True)
class Smoothed:
    """Means over stretches of steps, with the mean step `x` and the number of values, all
    [stretches].

    `low`, `high`: bounds of the 95 % intervals; NaN for a single value; None without bands.
    """

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    count: np.ndarray

    def series(self, name: str = "") -> Series:
        return Series(name, self.x, self.mean, self.low, self.high)

    def caption(self, values: str) -> str:
        """How the curve was averaged, in words; `values` names what was."""
        n = int(self.count.sum())
        fewest = int(self.count.min())
        largest = int(self.count.max())
        if largest == 1 and self.low is None:
            return f"every value; n = {n:,}"
        if n == 1:
            return "n = 1: no band"
        per_stretch = f"{fewest:,}" if fewest == largest else f"{fewest:,} to {largest:,}"
        stretches = "one stretch of steps"
        distance = ""
        if len(self.x) > 1:
            stretches = f"{len(self.x)} stretches of steps"
            width = (self.x[-1] - self.x[0]) / (len(self.x) - 1)
            if width:
                distance = f", {short(float(f'{width:.2g}'))} apart"
        band = "" if self.low is None else "; band: 95 % interval of the mean"
        return f"mean over each of {stretches}{distance}, {per_stretch} {values} in each{band}; n = {n:,}"


def joined_stretches(
    curves: Sequence[Curve], stop: float, stretches: int, least: int
) -> np.ndarray:
    """Edges [k + 1] of stretches in which every curve has `least` values; k = 0 if too few values
    exist.

    `stretches` is their number up to `stop` before they are joined; curves have finite values, at
    least one each.
    """
    start = min(float(curve.x[0]) for curve in curves)
    edges = np.linspace(start, stop, (stretches if stop > start else 1) + 1)
    # [curves, edges]: values before each edge; the last one belongs to its stretch.
    before = np.array([np.searchsorted(curve.x, edges, "left") for curve in curves])
    before[:, -1] = [np.searchsorted(curve.x, edges[-1], "right") for curve in curves]
    chosen = [0]
    # An edge ends a stretch once each curve has enough values since the last chosen edge.
    for edge in range(1, len(edges)):
        if (before[:, edge] - before[:, chosen[-1]]).min() >= least:
            chosen.append(edge)
    if len(chosen) > 1:
        # The last stretch takes the values that are too few for one of their own.
        chosen[-1] = len(edges) - 1
    return edges[chosen]


def _stretch_of(curve: Curve, edges: np.ndarray) -> np.ndarray:
    """The number of each value's stretch, int [n]; -1 beyond the last edge."""
    stretch = np.minimum(np.searchsorted(edges, curve.x, "right") - 1, len(edges) - 2)
    return np.where(curve.x <= edges[-1], stretch, -1)


def _finite(curve: Curve) -> Curve:
    finite = np.isfinite(curve.y)
    return Curve(curve.x[finite], curve.y[finite])


def smooth(curve: Curve, stretches: int = 60, band: bool = True, rate: bool = False) -> Smoothed:
    """Averages the finite values of a curve over at most `stretches` stretches of steps.

    With a `band` stretches hold `LEAST` values, or a fifth of all if that is less. Values of a
    `rate` are 0 or 1.
    """
    curve = _finite(curve)
    n = len(curve)
    if not n or (not band and n <= stretches):
        bound = np.empty(0) if band else None
        return Smoothed(curve.x, curve.y, bound, bound, np.ones(n, np.int64))

    # Two at least: one value has no band.
    least = min(n, max(2, min(LEAST, n // 5))) if band else 1
    stretches = max(1, min(stretches, len(np.unique(curve.x))))
    edges = joined_stretches([curve], float(curve.x[-1]), stretches, least)
    stretch = _stretch_of(curve, edges)
    parts = [np.flatnonzero(stretch == number) for number in range(len(edges) - 1)]
    x = np.array([curve.x[part].mean() for part in parts])
    mean = np.array([curve.y[part].mean() for part in parts])
    count = np.array([len(part) for part in parts])
    if not band:
        return Smoothed(x, mean, None, None, count)
    low, high = np.array([_interval(curve.y[part], rate) for part in parts]).T
    return Smoothed(x, mean, low, high, count)


def _interval(values: np.ndarray, rate: bool) -> tuple[float, float]:
    if len(values) == 1:
        return np.nan, np.nan
    if len(values) > _BLOCKS and not rate:
        values = np.array([part.mean() for part in np.array_split(values, _BLOCKS)])
    estimate = mean_of(values, rate, RESAMPLES)
    return estimate.low, estimate.high


def learning_curve(
    name: str, seeds: Sequence[Curve], points: int = 60, dashed: bool = False, least: int = 1
) -> Series:
    """Interquartile mean over `seeds` (a curve each), with its interval, over at most `points`
    stretches that all curves share.

    A stretch has `least` values of each seed; fewer if a seed has under five times as many.
    """
    label = f"{name} (n = {len(seeds)})"
    empty = Series(label, np.empty(0), np.empty(0), dashed=dashed)
    curves = [_finite(curve) for curve in seeds]
    # Beyond the end of the shortest run the mean would be over fewer seeds.
    stop = min((float(curve.x[-1]) for curve in curves if len(curve)), default=0.0)
    curves = [Curve(curve.x[curve.x <= stop], curve.y[curve.x <= stop]) for curve in curves]
    fewest = min(map(len, curves))
    if not fewest:
        return empty
    edges = joined_stretches(
        curves, stop, max(1, min(points, fewest)), max(1, min(least, fewest // 5))
    )
    if len(edges) < 2:
        return empty

    stretches = [_stretch_of(curve, edges) for curve in curves]
    estimates = []
    for number in range(len(edges) - 1):
        # A seed counts once, however many episodes it ended in the stretch.
        means = [
            curve.y[stretch == number].mean()
            for curve, stretch in zip(curves, stretches, strict=True)
        ]
        (estimate,) = bootstrap(np.array(means), [interquartile_mean], RESAMPLES)
        estimates.append((estimate.value, estimate.low, estimate.high))
    value, low, high = np.array(estimates).T
    x = (edges[:-1] + edges[1:]) / 2
    if len(seeds) == 1:
        return Series(label, x, value, dashed=dashed)
    return Series(label, x, value, low, high, dashed)


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
    steps = np.linspace(0.0, end, _EFFICIENCY_POINTS)
    return float(np.interp(steps, x, mean).mean())


def _mean_efficiency(curves: Sequence[Curve], end: float) -> tuple[int, Estimate]:
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


def efficiency_rows(
    runs: Sequence[Learned], key: str
) -> list[tuple[str, str, int, float, Estimate]]:
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
            count, mean = _mean_efficiency(of_method, end)
            rows.append((task, method, count, end, mean))
    return rows


def efficiency_section(runs: Sequence[Learned], measures: Sequence[str]) -> Section:
    """Efficiency by measure, task and method."""
    parts = []
    for key in measures:
        rows = [
            (task, method, f"{count}", f"{end:,.0f}", estimate_cell(mean))
            for task, method, count, end, mean in efficiency_rows(runs, key)
        ]
        if rows:
            header = ("task", "method", "runs", "up to step", with_unit(measure(key)))
            parts.append(Table(f"efficiency-{key}", header, rows, in_files=True))
    note = (
        "Mean over the steps of the smoothed curve, up to the end of a task's shortest run; brackets: 95 % bootstrap interval over runs, "
        "which one run does not have."
    )
    return Section("Sample efficiency", "efficiency", parts, note)
