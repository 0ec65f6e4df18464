"""Computes sample efficiency, the mean of a smoothed learning curve up to a step (Carta et al. 2023).

For success rates it is 1 if the agent succeeds from the first step on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.envs.babyai_text import catalogue
from motif_jax.reports.charts import Plot, Series
from motif_jax.reports.page import Section, Table, estimate_cell
from motif_jax.reports.smoothing import smooth
from motif_jax.reports.statistics import Estimate, mean_of
from motif_jax.support import config as checks
from motif_jax.support.metric_files import Curve

ACTIONS, DISTRACTORS = "actions", "distractors"
_POINTS = 200
_PUBLISHED = re.compile(r"_nbr_actions_(\d+)_")


class Learned(NamedTuple):
    """One training: its curve over environment steps, and the numbers 'actions' and 'distractors' where they are known."""

    method: str
    task: str
    curve: Curve
    settings: Mapping[str, int]


def settings_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of actions and distractors in a training's config; {} outside of BabyAI-Text."""
    environment = config.get("environment", {})
    name, options = environment.get("name", ""), environment.get("babyai_text")
    if not name.startswith(catalogue.PREFIX) or not isinstance(options, Mapping):
        return {}
    distractors = options.get("distractors")
    return {ACTIONS: len(options.get("actions", catalogue.ACTIONS)), **_own(name, distractors)}


def settings_of_published(folder: Path, task: str) -> dict[str, int]:
    """As `settings_of`, for a folder of the published tool, whose name has the number of actions."""
    found = _PUBLISHED.search(f"_{folder.name}_")
    return {**({ACTIONS: int(found[1])} if found else {}), **_own(task, None)}


def _own(name: str, distractors: int | None) -> dict[str, int]:
    level = catalogue.find(name) if name.startswith(catalogue.PREFIX) else None
    if level is None:
        return {}
    from motif_jax.envs.babyai_text.levels import distractors_of

    own = distractors_of(level)
    return {} if own is None else {DISTRACTORS: own[1] if distractors is None else distractors}


def end_of(runs: Sequence[Learned], steps: int | None) -> float:
    """The last step of the comparison: `steps`, or the end of the shortest run. Raises UserError: no run, or not all, reach it."""
    shortest = min(float(run.curve.x[-1]) for run in runs)
    if steps is None:
        return shortest
    allowed = f"at most {shortest:.0f}, where the shortest run ends"
    checks.require(steps <= shortest, "efficiency_steps", steps, allowed)
    begun = [run.curve.x[np.isfinite(run.curve.y)][:1] for run in runs]
    earliest = min((float(first[0]) for first in begun if len(first)), default=0.0)
    allowed = f"at least {earliest:.0f}, where the first curve begins"
    checks.require(steps >= earliest, "efficiency_steps", steps, allowed)
    return float(steps)


def efficiency(curve: Curve, end: float) -> float:
    """The mean of a smoothed curve over the steps up to `end`; NaN without a value there."""
    kept = curve.x <= end
    smoothed = smooth(Curve(curve.x[kept], curve.y[kept]), band=False)
    if not len(smoothed.x):
        return math.nan
    places = np.linspace(0.0, end, _POINTS)
    return float(np.interp(places, smoothed.x, smoothed.mean).mean())


def _estimate(runs: Sequence[Learned], end: float) -> tuple[int, Estimate]:
    """How many runs have an efficiency up to `end`, and their mean with its 95 % interval, which one run does not have."""
    values = [value for run in runs if np.isfinite(value := efficiency(run.curve, end))]
    alone = Estimate(values[0] if values else math.nan, math.nan, math.nan)
    return len(values), mean_of(values) if len(values) > 1 else alone


def table(runs: Sequence[Learned], steps: int | None) -> list[tuple[str, str, int, float, Estimate]]:
    """Rows (task, method, runs, end, efficiency), each task up to its `end_of`; runs without a value there do not count."""
    rows = []
    for task in dict.fromkeys(run.task for run in runs):
        mine = [run for run in runs if run.task == task]
        end = end_of(mine, steps)
        for method in dict.fromkeys(run.method for run in mine):
            count, mean = _estimate([run for run in mine if run.method == method], end)
            rows.append((task, method, count, end, mean))
    return rows


def against(runs: Sequence[Learned], key: str, steps: int | None) -> list[Series]:
    """Efficiency up to one step against the setting `key`: a line per method whose runs have several values of it."""
    methods: dict[str, dict[int, list[Learned]]] = {}
    for run in runs:
        if key in run.settings:
            methods.setdefault(run.method, {}).setdefault(run.settings[key], []).append(run)
    several = {method: dict(sorted(of.items())) for method, of in methods.items() if len(of) > 1}
    if not several:
        return []
    end = end_of([run for of in several.values() for some in of.values() for run in some], steps)
    lines = []
    for method, of in several.items():
        found = [_estimate(some, end)[1] for some in of.values()]
        mean, low, high = np.array([(one.value, one.low, one.high) for one in found]).T
        lines.append(Series(method, np.array(list(of), float), mean, low, high, bars=True))
    return lines


def section(runs: Sequence[Learned], steps: int | None, label: str) -> Section:
    """Efficiency by task and method, and against each setting that varies within a method."""
    rows = [
        (task, method, f"{count}", f"{end:,.0f}", estimate_cell(found))
        for task, method, count, end, found in table(runs, steps)
    ]
    header = ("task", "method", "runs", "up to step", "efficiency")
    parts: list[Any] = [Table("efficiency-table", header, rows, in_files=True)]
    bars = "bars: 95 % bootstrap interval over runs"
    for key in (ACTIONS, DISTRACTORS):
        if lines := against(runs, key, steps):
            title, y_label = f"against the number of {key}", f"sample efficiency, {label}"
            parts.append(Plot(title, key, y_label, lines, note=bars, file=f"efficiency_{key}"))
    note = (
        f"Mean over the steps of the smoothed curve of {label}, up to the end of a task's shortest run or config.efficiency_steps; "
        "brackets: 95 % bootstrap interval over runs, which one run does not have."
    )
    return Section("Sample efficiency", "efficiency", parts, note)
