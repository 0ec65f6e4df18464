"""Sections of a run's page on text agents: their returns, and return against divergence from the
policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import format_estimate, format_interval
from motif_jax.display.page import Section, Table
from motif_jax.display.statistics import Summary
from motif_jax.reports.evaluation_sections import MeasureRow, rows_of
from motif_jax.reports.run_data import RunData


def is_text(evaluation: Mapping[str, Any]) -> bool:
    """Whether `evaluate_text` made the evaluation."""
    return "decode" in evaluation["plan"]


def headline(data: RunData) -> tuple[str, str] | None:
    """Compares the returns of evaluations of a text task, and names their success: (text, kind as
    of `Verdict`); None without.
    """
    if not data.evaluations or not all(map(is_text, data.evaluations.values())):
        return None
    rows = {row.measure.key: row for row in rows_of(data)}
    if rows["return"].is_zero:
        return f"The return of all episodes is 0: {', '.join(data.evaluations)}.", ""
    text, kind = _side_by_side(rows["return"], "Mean return", data.yardsticks)
    if "success" in rows:
        success, _ = _side_by_side(rows["success"], "Success rate", data.yardsticks)
        text += f" {success}"
    if data.yardsticks:
        text += f" Not judged by: {', '.join(data.yardsticks)}."
    return text, kind


def _side_by_side(row: MeasureRow, title: str, yardsticks: Sequence[str]) -> tuple[str, str]:
    """The means and which intervals lie apart from the first one: (text, kind)."""
    first = next(iter(row.summaries))
    means = ", ".join(
        f"{name} {format_estimate(summary.mean)}" for name, summary in row.summaries.items()
    )
    counts = dict.fromkeys(f"{summary.n:,}" for summary in row.summaries.values())
    episodes = "episodes each" if len(counts) == 1 else "episodes"
    text = f"{title} of {', '.join(counts)} {episodes}: {means}."
    judged = {
        name: summary.mean for name, summary in row.summaries.items() if name not in yardsticks
    }
    if not judged:
        return text, ""
    own_name, *others = judged
    below = [name for name in others if judged[own_name].low > judged[name].high]
    above = [name for name in others if judged[own_name].high < judged[name].low]
    if below:
        text += f" The interval of {first} lies wholly above that of {', '.join(below)}."
    if above:
        text += f" The interval of {first} lies wholly below that of {', '.join(above)}."
    if others and below == others:
        return text, "good"
    return text, "bad" if above and not below else ""


class _Point(NamedTuple):
    """An evaluation in the chart: divergence, return with its interval, and the weight of
    advantages as it decoded.
    """

    divergence: float
    mean: float
    low: float
    high: float
    weight: float


def divergence_section(data: RunData) -> Section | None:
    """Return against divergence from the policy: a line over advantage weights per agent and
    decoding; None without both.
    """
    points_of_line: dict[str, list[_Point]] = {}
    for evaluation in data.evaluations.values():
        measures = evaluation["measures"]
        plan = evaluation["plan"]
        if not is_text(evaluation) or plan["decode"] is None or "divergence" not in measures:
            continue
        decode = plan["decode"]
        name = f"{plan['policy']}, {decode['kind']}"
        if decode["advantage_clip"] is not None:
            name += f", clip {decode['advantage_clip']:g}"
        mean = Summary.from_dict(measures["return"]).mean
        # Without advantages the weight changes nothing.
        weight = decode["advantage_weight"] if decode["advantages"] else 0.0
        point = _Point(
            measures["divergence"]["mean"]["value"], mean.value, mean.low, mean.high, weight
        )
        points_of_line.setdefault(name, []).append(point)
    if not points_of_line:
        return None

    lines = []
    rows = []
    for name, points in points_of_line.items():
        # The line runs along the x axis, which is the first field of a point.
        divergence, mean, low, high, _ = np.array(sorted(points)).T
        lines.append(Series(name, divergence, mean, low, high, bars=True))
        for point in sorted(points, key=lambda point: point.weight):
            mean_cell = TableCell(f"{point.mean:.3f}", point.mean, note=format_interval(point))
            rows.append(
                [
                    name,
                    number_cell(point.weight, "g"),
                    number_cell(point.divergence, ".3f"),
                    mean_cell,
                ]
            )
    title = "Return against divergence"
    x_label = "divergence from the policy (nats an episode)"
    plot = Plot(title.lower(), x_label, "mean return", lines, file="divergence")
    header = ["agent", "advantage weight", "divergence (nats)", "mean return"]
    note = (
        "Divergence is log p - log π of what was said, summed over an episode (the published estimate of KL). A line is one agent and "
        "way to decode; its points are advantage weights."
    )
    return Section(title, "divergence", [plot, Table("divergence-table", header, rows)], note)
