"""Sections of a run's page that show evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from motif_jax.play.evaluation_files import REWARD, comparable, games, reward_differences
from motif_jax.reports import html
from motif_jax.reports.charts import Interval, Plot
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import Measure, format_pairs, in_order, measure, with_unit
from motif_jax.reports.page import Section, Table, estimate_cell
from motif_jax.reports.run_data import RunData
from motif_jax.reports.statistics import Difference, Summary, gap, probability_of_improvement


def summaries(evaluation: Mapping[str, Any]) -> dict[str, Summary]:
    """The summaries of an evaluation.json by key."""
    return {key: Summary.from_dict(value) for key, value in evaluation["measures"].items()}


class MeasureRow(NamedTuple):
    """A measure of all evaluations; `against` comparable ones the first's difference, and its chance of a better episode."""

    what: Measure
    of: dict[str, Summary]
    against: dict[str, tuple[Difference, float]]


def rows_of(data: RunData) -> list[MeasureRow]:
    """The measures of the evaluations side by side, for the page and for files."""
    by_name = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    rows = []
    for key in in_order(key for summary in by_name.values() for key in summary):
        of = {name: summary[key] for name, summary in by_name.items() if key in summary}
        if all(summary.minimum == summary.maximum == 0 for summary in of.values()):
            continue  # a row of zeros says nothing
        rows.append(MeasureRow(measure(key), of, against(data, key)))
    return rows


def against(data: RunData, key: str) -> dict[str, tuple[Difference, float]]:
    """The field `MeasureRow.against` of the measure `key`."""
    name, *others = data.evaluations
    first = data.evaluations[name]
    own, found = games(first, key), {}
    for other in others:
        theirs = games(data.evaluations[other], key)
        if own and theirs and comparable(first, data.evaluations[other], key):
            apart = gap(own, theirs, key == "success", confidence=first["confidence"])
            every = [np.array(list(side.values())) for side in (own, theirs)]
            found[other] = apart, probability_of_improvement(*every)
    return found


def _cells(row: MeasureRow, names: list[str]) -> list[TableCell]:
    of, nothing = row.of, TableCell("")
    cells = [TableCell(with_unit(row.what))]
    cells += [estimate_cell(of[name].mean) if name in of else TableCell("not measured") for name in names]
    for other in names[1:]:
        if other in row.against:
            gap, chance = row.against[other]
            cells += [estimate_cell(gap, format_pairs(gap)), TableCell(f"{100 * chance:.0f} %", chance)]
        else:
            cells += [nothing, nothing]
    middle = {} if row.what.unit == "share" else of
    return cells + [estimate_cell(middle[name].iqm) if name in middle else nothing for name in names]


def evaluation_section(data: RunData) -> Section:
    """The evaluations side by side, as a table and as charts of the intervals."""
    if not data.evaluations:
        return Section("Evaluation", "evaluation", [html.nothing("no evaluation was given")])
    names, rows = list(data.evaluations), rows_of(data)
    header = ["measure", *(f"{name}: mean" for name in names)]
    for other in names[1:]:
        header += [f"{names[0]} minus {other}", f"better episode than {other}"]
    header += [f"{name}: interquartile mean" for name in names]
    table = Table("evaluation-table", header, [_cells(row, names) for row in rows], in_files=True)
    parts: list[Any] = [table]
    for what, of, _ in rows:
        intervals = [
            Interval(f"{name} (n = {of[name].n})", mean.value, mean.low, mean.high, colour)
            for colour, name in enumerate(names)
            if name in of and (mean := of[name].mean)
        ]
        axes, file = (f"mean {with_unit(what)}", ""), f"evaluation_{what.key}"
        parts.append(Plot(what.title, *axes, intervals=intervals, note=what.meaning, file=file))
    return Section("Evaluation", "evaluation", parts, _note(data))


def _note(data: RunData) -> str:
    method = next(iter(data.evaluations.values()))
    played = "; ".join(
        f"{name}: n = {e['episodes']} episodes of {e['plan']['environment']}"
        for name, e in data.evaluations.items()
    )
    levels = dict.fromkeys(f"{100 * e['confidence']:g} %" for e in data.evaluations.values())
    note = f"{played}. Brackets and bars: {' and '.join(levels)} intervals ({method['intervals']})."
    if len(data.evaluations) > 1:
        note += (
            f" Differences: {100 * method['confidence']:g} % intervals, of pairs, the games that both played, where those are at least half of "
            "the smaller one's; else of each side's own games (bootstrap; success rate: Newcombe). Better episode: chance that an "
            "episode of the first exceeds one of the other, ties count half."
        )
    return " ".join(filter(None, [note, *(otherwise_rated(data, other) for other in data.evaluations)]))


def otherwise_rated(data: RunData, other: str) -> str:
    """A note if another reward rated the evaluation `other` than the first; '' if not, or if one is unrated."""
    name, *_ = data.evaluations
    both = data.evaluations[name], data.evaluations[other]
    what = reward_differences(*both) if all(REWARD in one["measures"] for one in both) else ""
    return what and (
        f"{name} and {other} were rated by different rewards ({what}): their intrinsic returns are not compared. Evaluate both with the "
        "same config.reward."
    )
