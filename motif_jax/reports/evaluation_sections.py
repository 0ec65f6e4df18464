"""Sections of a run's page that show evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.reports import charts, html
from motif_jax.reports.charts import Interval
from motif_jax.reports.html import Cell
from motif_jax.reports.measures import (
    BY_KEY,
    format_estimate,
    format_interval,
    format_value,
    measure,
    with_unit,
)
from motif_jax.reports.run_data import RunData
from motif_jax.reports.statistics import Estimate, Summary, paired_difference, probability_of_improvement


def summaries(evaluation: Mapping[str, Any]) -> dict[str, Summary]:
    """Returns the summaries of an evaluation.json by key."""
    return {key: Summary.from_dict(value) for key, value in evaluation["measures"].items()}


def headline(data: RunData) -> tuple[str, str]:
    """Says in one line what the evaluations show; returns (text, kind)."""
    names = list(data.evaluations)
    key = "intrinsic_return"
    if len(names) < 2 or any(key not in data.evaluations[name]["measures"] for name in names[:2]):
        return (
            "Agent and baseline were not both evaluated with an intrinsic reward, so nothing can be said yet.",
            "",
        )
    first, second = (summaries(data.evaluations[name])[key] for name in names[:2])
    text = (
        f"Mean intrinsic return per episode: {names[0]} {format_estimate(first.mean)} (n = {first.n}), "
        f"{names[1]} {format_estimate(second.mean)} (n = {second.n}); "
    )
    intervals = f"the {_confidence(data)} intervals"
    if not first.mean.disjoint(second.mean):
        return text + f"{intervals} overlap: no clear difference.", ""
    if first.mean.value > second.mean.value:
        return text + f"{intervals} are disjoint, {names[0]} collects more.", "good"
    return text + f"{intervals} are disjoint, {names[0]} collects LESS.", "bad"


def _confidence(data: RunData) -> str:
    """The confidence of the evaluations' intervals: '95 %', or '95 % and 90 %' where they differ."""
    levels = dict.fromkeys(evaluation["confidence"] for evaluation in data.evaluations.values())
    return " and ".join(f"{100 * level:g} %" for level in levels)


def _paired(first: Mapping[str, Any], second: Mapping[str, Any], key: str) -> Estimate | None:
    """The mean difference over episodes of the same seeds; None where the seeds differ."""
    one = {row["seed"]: row[key] for row in first["rows"] if row.get(key) is not None}
    two = {row["seed"]: row[key] for row in second["rows"] if row.get(key) is not None}
    if not one or set(one) != set(two):
        return None
    shared = sorted(one)
    values = [np.array([of[seed] for seed in shared]) for of in (one, two)]
    return paired_difference(values[0], values[1], confidence=first["confidence"])


def _estimate_cell(estimate: Estimate) -> Cell:
    return Cell(format_value(estimate.value), estimate.value, note=format_interval(estimate))


def _comparison_cells(data: RunData, key: str) -> list[Cell]:
    first, second = data.evaluations.values()
    difference = _paired(first, second, key)
    cells = [_estimate_cell(difference) if difference else Cell("other seeds")]
    values = [np.array([row[key] for row in e["rows"] if row.get(key) is not None]) for e in (first, second)]
    if not all(len(v) for v in values):
        return [*cells, Cell("")]
    chance = probability_of_improvement(*values)
    return [*cells, Cell(f"{100 * chance:.0f} %", chance)]


def _evaluation_table(data: RunData, keys: list[str], by_name: Mapping[str, Mapping[str, Summary]]) -> str:
    names, compare = list(data.evaluations), len(data.evaluations) == 2
    header = ["measure", *(f"{name}: mean" for name in names)]
    header += [f"{names[0]} minus {names[1]}", "better episode"] if compare else []
    header += [f"{name}: interquartile mean" for name in names]
    rows = []
    for key in keys:
        what = measure(key)
        row: list[Any] = [Cell(with_unit(what))]
        for name in names:
            summary = by_name[name].get(key)
            row.append(Cell("not measured") if summary is None else _estimate_cell(summary.mean))
        if compare:
            row += _comparison_cells(data, key)
        for name in names:
            summary = by_name[name].get(key)
            shown = summary is not None and what.unit != "share"
            row.append(_estimate_cell(summary.iqm) if shown and summary else Cell(""))
        rows.append(row)
    return html.table(header, rows, "evaluation-table")


def evaluation_section(data: RunData) -> str:
    """The table of the evaluations side by side, with intervals as pictures."""
    if not data.evaluations:
        return html.section("Evaluation", "evaluation", charts.empty_chart("no evaluation was given"))
    by_name = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    keys = [key for key in BY_KEY if any(key in s for s in by_name.values())]
    pictures = []
    for key in keys:
        what, intervals = measure(key), []
        for colour, (name, of) in enumerate(by_name.items()):
            if key in of:
                mean = of[key].mean
                intervals.append(
                    Interval(f"{name} (n = {of[key].n})", mean.value, mean.low, mean.high, colour)
                )
        label = f"mean {with_unit(what)}"
        pictures.append(html.figure(what.title, charts.interval_chart(intervals, label, label), what.meaning))
    method = next(iter(data.evaluations.values()))
    level = f"{100 * method['confidence']:g} %"
    played = "; ".join(
        f"{name}: n = {e['episodes']} episodes of {e['plan']['environment']}"
        for name, e in data.evaluations.items()
    )
    note = f"{played}. Brackets and bars: {_confidence(data)} intervals ({method['intervals']})."
    if len(data.evaluations) == 2:
        note += (
            f" Difference: mean over episodes with the same seeds, {level} interval. Better episode: chance that an episode of the first "
            "exceeds one of the second, ties count half."
        )
    table = _evaluation_table(data, keys, by_name)
    return html.section("Evaluation", "evaluation", table, html.grid(*pictures), note=note)


def episodes_section(data: RunData, count: int = 5) -> str:
    """Best and worst evaluated episodes, with their seeds and replays."""
    if not data.evaluations:
        return ""
    name, evaluation = next(iter(data.evaluations.items()))
    key = "intrinsic_return" if "intrinsic_return" in evaluation["measures"] else "return"
    ranked = sorted(evaluation["rows"], key=lambda row: -row[key])
    chosen = ranked if len(ranked) <= 2 * count else [*ranked[:count], *ranked[-count:]]
    links = dict(data.replays)
    rows = []
    for row in chosen:
        link = links.get(str(row["index"]))
        watch = html.Markup(f'<a href="{html.escape(link)}">watch</a>') if link else Cell("not recorded")
        shown = [
            Cell(format_value(row[k]), row[k]) for k in ("return", "length", "score", "dlvl") if k in row
        ]
        rows.append((Cell(str(row["index"]), float(row["index"])), Cell(str(row["seed"])), Cell(format_value(row[key]), row[key]), *shown, Cell(row["end_reason"]), watch))  # fmt: skip
    present = [measure(k) for k in ("return", "length", "score", "dlvl") if k in chosen[0]]
    header = (
        "episode",
        "seed",
        measure(key).title,
        *(with_unit(m) for m in present),
        "ended by",
        "replay",
    )
    return html.section(
        "Best and worst episodes",
        "episodes",
        html.table(header, rows, "episode-table"),
        note=f"Evaluation {name}, ordered by {measure(key).title}; every episode can be replayed from its seed and actions.",
    )
