"""Sections of a run's page on text agents: their returns, and return against divergence from the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.display.charts import Plot, Series
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import format_estimate
from motif_jax.display.page import Section, Table
from motif_jax.reports.evaluation_sections import MeasureRow, rows_of
from motif_jax.reports.run_data import RunData


def is_text(evaluation: Mapping[str, Any]) -> bool:
    """Whether `evaluate_text` made the evaluation."""
    return "decode" in evaluation["plan"]


def headline(data: RunData) -> tuple[str, str] | None:
    """Compares the returns (success is only told) of evaluations of a text task: (text, kind as of `Verdict`); None without."""
    if not data.evaluations or not all(map(is_text, data.evaluations.values())):
        return None
    rows = {row.what.key: row for row in rows_of(data)}
    text, kind = _side_by_side(rows["return"], "Mean return", data.yardsticks)
    if "success" in rows:
        text += f" {_side_by_side(rows['success'], 'Success rate', data.yardsticks)[0]}"
    if data.yardsticks:
        text += f" Not judged by: {', '.join(data.yardsticks)}."
    return text, kind


def _side_by_side(row: MeasureRow, title: str, yardsticks: Sequence[str]) -> tuple[str, str]:
    first = next(iter(row.of))
    means = ", ".join(f"{name} {format_estimate(row.of[name].mean)}" for name in row.of)
    judged = {name: summary.mean for name, summary in row.of.items() if name not in yardsticks}
    own, *others = judged
    below = [name for name in others if judged[own].low > judged[name].high]
    above = [name for name in others if judged[own].high < judged[name].low]
    kind = "good" if others and below == others else "bad" if above and not below else ""
    text = f"{title} of {row.of[first].n:,} episodes each: {means}."
    for side, names in (("above", below), ("below", above)):
        text += f" The interval of {first} lies wholly {side} that of {', '.join(names)}." if names else ""
    return text, kind


def divergence_section(data: RunData) -> Section | None:
    """Return against divergence from the policy: a line over advantage weights per agent and decoding; None without both."""
    found: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for evaluation in data.evaluations.values():
        measures, plan = evaluation["measures"], evaluation["plan"]
        if not is_text(evaluation) or plan["decode"] is None or "divergence" not in measures:
            continue
        mean, decode = measures["return"]["mean"], plan["decode"]
        clip, weight = decode["advantage_clip"], decode["advantage_weight"] * decode["advantages"]
        name = f"{plan['policy']}, {decode['kind']}" + ("" if clip is None else f", clip {clip:g}")
        point = (measures["divergence"]["mean"]["value"], mean["value"], mean["low"], mean["high"], weight)
        found.setdefault(name, []).append(point)
    if not found:
        return None
    lines, rows = [], []
    for name, points in found.items():
        x, y, low, high, _ = np.array(sorted(points)).T
        lines.append(Series(name, x, y, low, high, bars=True))
        for kl, mean, a, b, weight in sorted(points, key=lambda point: point[-1]):
            earned = TableCell(f"{mean:.3f}", mean, note=f"[{a:.3f}, {b:.3f}]")
            rows.append([name, number_cell(weight, "g"), number_cell(kl, ".3f"), earned])
    title, x_label = "Return against divergence", "divergence from the policy (nats an episode)"
    plot = Plot(title.lower(), x_label, "mean return", lines, file="divergence")
    header = ["agent", "advantage weight", "divergence (nats)", "mean return"]
    note = (
        "Divergence is log p - log π of what was said, summed over an episode (the published estimate of KL). A line is one agent and "
        "way to decode; its points are advantage weights."
    )
    return Section(title, "divergence", [plot, Table("divergence-table", header, rows)], note)
