"""Sections of a run's page about agents that learn from dialogues: curves, return against divergence, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.reports import charts, html, language_section, success
from motif_jax.reports.charts import Series
from motif_jax.reports.evaluation_sections import MeasureRow, rows_of
from motif_jax.reports.measures import format_estimate
from motif_jax.reports.run_data import RunData
from motif_jax.support.curves import Curve

_TRAIN, _HELD_OUT = "train/", "validation/"
# Groups of metrics whose every name is a chart; all but the first are those of PPO.
_SHOWN = ("games/", "episode/", "reference/", "policy/", "loss/", "value/")


def is_text(evaluation: Mapping[str, Any]) -> bool:
    """Whether it is one of `evaluate_text`."""
    return "decode" in evaluation["plan"]


def headline(data: RunData) -> tuple[str, str] | None:
    """What the evaluations of a text task say of the return, (text, kind as of `Verdict`); None where there are none.

    The share of successes, where the task has it, stands beside the return and is no part of the verdict.
    """
    if not data.evaluations or not all(map(is_text, data.evaluations.values())):
        return None
    rows = {row.what.key: row for row in rows_of(data)}
    text, kind = _side_by_side(rows["return"], "Mean return", data.yardsticks)
    parts = [text]
    if "success" in rows:
        parts.append(_side_by_side(rows["success"], "Success rate", data.yardsticks)[0])
    if data.yardsticks:
        parts.append(f"Not judged by: {', '.join(data.yardsticks)}.")
    return " ".join(parts), kind


def _side_by_side(row: MeasureRow, title: str, yardsticks: Sequence[str]) -> tuple[str, str]:
    """A measure of all evaluations, where the first one stands in it, and the kind of the verdict."""
    first = next(iter(row.of))
    means = ", ".join(f"{name} {format_estimate(row.of[name].mean)}" for name in row.of)
    judged = {name: summary.mean for name, summary in row.of.items() if name not in yardsticks}
    below, above, kind = success.standing(judged)
    parts = [f"{title} of {row.of[first].n:,} episodes each: {means}."]
    parts += [
        f"The interval of {first} lies wholly {side} that of {', '.join(names)}."
        for side, names in (("above", below), ("below", above))
        if names
    ]
    return " ".join(parts), kind


def facts(curves: Mapping[str, Curve]) -> list[tuple[str, str, str]]:
    """What stands first: (what, value, what stands below it)."""
    curve = curves.get("validation/loss")
    if curve is None or not np.isfinite(curve.y).any():
        return []
    return [("held-out loss", f"{curve.y[np.isfinite(curve.y)][-1]:.4g}", f"at step {int(curve.x[-1]):,}")]


def training_section(curves: Mapping[str, Curve]) -> str:
    """Curves of the training; nothing where none was given."""
    if not curves:
        return ""
    names = [name.removeprefix(_HELD_OUT) for name in curves if name.startswith(_HELD_OUT)]
    names += [name.removeprefix(_TRAIN) for name in curves if name.startswith(_TRAIN)]
    ranges = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    of_ranges = {f"{name}_{part}" for name in ranges for part in ("max", "mean", "min")}
    wanted = {name: [(f"{_TRAIN}{name}", "training"), (f"{_HELD_OUT}{name}", "held out")] for name in names if name not in of_ranges}  # fmt: skip
    wanted |= {f"range of {name}": [(f"{_TRAIN}{name}_{part}", part) for part in ("max", "mean", "min")] for name in ranges}  # fmt: skip
    wanted |= {name.replace("/", ", "): [(name, "")] for name in curves if name.startswith(_SHOWN)}
    figures = []
    for name, pair in wanted.items():
        if found := language_section.lines(curves, pair):
            title = name.replace("_", " ")
            chart = charts.line_chart(found, "step of the optimiser", title, f"{title} of the text agent")
            figures.append(html.figure(title, chart, ""))
    return html.section("Learning from dialogues", "text", html.grid(*figures))


def divergence_section(data: RunData) -> str:
    """Return against divergence from the policy, a line over advantage weights for each agent and way to decode; nothing without both."""
    found: dict[str, list[tuple[float, float, float, float, float]]] = {}
    for evaluation in data.evaluations.values():
        measures, plan = evaluation["measures"], evaluation["plan"]
        if not is_text(evaluation) or plan["decode"] is None or "divergence" not in measures:
            continue
        mean, clip = measures["return"]["mean"], plan["decode"]["advantage_clip"]
        name = f"{plan['policy']}, {plan['decode']['kind']}" + ("" if clip is None else f", clip {clip:g}")
        weight = plan["decode"]["advantage_weight"] if plan["decode"]["advantages"] else 0.0
        found.setdefault(name, []).append(
            (measures["divergence"]["mean"]["value"], mean["value"], mean["low"], mean["high"], weight)
        )
    if not found:
        return ""
    lines, rows = [], []
    for name, points in found.items():
        ordered = sorted(points)
        x, y, low, high, _ = (np.array(column) for column in zip(*ordered, strict=True))
        lines.append(Series(name, x, y, low, high, bars=True))
        rows += [
            [
                html.TableCell(name),
                html.TableCell(f"{weight:g}", weight),
                html.TableCell(f"{kl:.3f}", kl),
                html.TableCell(f"{mean:.3f}", mean, note=f"[{a:.3f}, {b:.3f}]"),
            ]
            for kl, mean, a, b, weight in sorted(points, key=lambda point: point[-1])
        ]
    chart = charts.line_chart(
        lines, "divergence from the policy (nats an episode)", "mean return", "return against divergence"
    )
    table = html.table(
        ["agent", "advantage weight", "divergence (nats)", "mean return"], rows, "divergence-table"
    )
    note = "Divergence is log p - log π of what was said, summed over an episode (the published estimate of KL). A line is one agent and way to decode; its points are advantage weights."
    return html.section(
        "Return against divergence", "divergence", html.grid(html.figure("return against divergence", chart, "")), table, note=note
    )  # fmt: skip
