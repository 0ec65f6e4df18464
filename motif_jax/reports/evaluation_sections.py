"""Sections of a run's page that show evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import html
from motif_jax.display.charts import Interval, Plot
from motif_jax.display.html import TableCell
from motif_jax.display.measures import (
    Measure,
    format_estimate,
    format_pairs,
    in_order,
    is_rate,
    measure,
    progress_keys,
    with_unit,
)
from motif_jax.display.page import Fold, Section, Table, estimate_cell
from motif_jax.display.statistics import Difference, Summary, gap, probability_of_improvement
from motif_jax.play.evaluation_files import REWARD, comparable, games, reward_differences
from motif_jax.reports.run_data import RunData


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
            every = [np.array(list(side.values())) for side in (own, theirs)]
            rate = is_rate(key, np.concatenate(every))
            apart = gap(own, theirs, rate, confidence=first["confidence"])
            found[other] = apart, probability_of_improvement(*every)
    return found


def _cells(row: MeasureRow, names: list[str], middle: bool) -> list[TableCell]:
    """The row of a table; with `middle` also the interquartile means."""
    of, nothing = row.of, TableCell("")
    cells = [TableCell(with_unit(row.what))]
    cells += [estimate_cell(of[name].mean) if name in of else TableCell("not measured") for name in names]
    for other in names[1:]:
        if other in row.against:
            gap, chance = row.against[other]
            cells += [estimate_cell(gap, format_pairs(gap)), TableCell(f"{100 * chance:.0f} %", chance)]
        else:
            cells += [nothing, nothing]
    if not middle:
        return cells
    for name in names:
        has_middle = name in of and row.what.unit != "share"
        cells.append(estimate_cell(of[name].iqm) if has_middle else nothing)
    return cells


def _header(names: list[str], middle: bool) -> list[str]:
    header = ["measure", *(f"{name}: mean" for name in names)]
    for other in names[1:]:
        header += [f"{names[0]} minus {other}", f"better episode than {other}"]
    if middle:
        header += [f"{name}: interquartile mean" for name in names]
    return header


def _interval_plots(rows: Sequence[MeasureRow], names: list[str]) -> list[Plot]:
    plots = []
    for what, of, _ in rows:
        intervals = []
        for colour, name in enumerate(names):
            if name in of:
                mean = of[name].mean
                label = f"{name} (n = {of[name].n})"
                intervals.append(Interval(label, mean.value, mean.low, mean.high, colour))
        axes, file = (f"mean {with_unit(what)}", ""), f"evaluation_{what.key}"
        plots.append(Plot(what.title, *axes, intervals=intervals, note=what.meaning, file=file))
    return plots


def _main_keys(rows: Sequence[MeasureRow]) -> set[str]:
    return {REWARD, "return", "length", *progress_keys(row.what.key for row in rows)}


def evaluation_section(data: RunData) -> Section:
    """The evaluations side by side: reward and progress in a table, all measures with charts of their intervals in a fold."""
    if not data.evaluations:
        return Section("Evaluation", "evaluation", [html.nothing("no evaluation was given")])
    names, rows = list(data.evaluations), rows_of(data)
    shown = _main_keys(rows)
    main = [_cells(row, names, middle=False) for row in rows if row.what.key in shown]
    every = [_cells(row, names, middle=True) for row in rows]
    full = Table("evaluation-table", _header(names, True), every, note=_note(data), in_files=True)
    fold = Fold(
        f"all {len(rows)} measures: interquartile means, intervals as charts, how they are computed",
        [f'<p class="explain">{html.escape(_method(data))}</p>', full, *_interval_plots(rows, names)],
    )
    table = Table("result-table", _header(names, False), main)
    return Section("Evaluation", "evaluation", [table, fold], _played(data))


def comparison(data: RunData) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the evaluations' reward and progress side by side, narrow enough for a terminal."""
    names = list(data.evaluations)
    rows = rows_of(data) if names else []
    shown = _main_keys(rows)
    header = ["measure (unit)", *names, *(f"{names[0]} minus {other}" for other in names[1:])]
    cells = []
    for row in rows:
        if row.what.key not in shown:
            continue
        line = [with_unit(row.what)]
        line += [format_estimate(row.of[name].mean) if name in row.of else "" for name in names]
        line += [
            format_estimate(row.against[other][0]) if other in row.against else "" for other in names[1:]
        ]
        cells.append(line)
    return header, cells


def _played(data: RunData) -> str:
    """Who played what, and which are not compared."""
    played = "; ".join(
        f"{name}: n = {e['episodes']} episodes of {e['plan']['environment']}"
        for name, e in data.evaluations.items()
    )
    warnings = [otherwise_rated(data, other) for other in data.evaluations]
    return " ".join(filter(None, [f"{played}.", *warnings]))


def _method(data: RunData) -> str:
    method = next(iter(data.evaluations.values()))
    levels = dict.fromkeys(f"{100 * e['confidence']:g} %" for e in data.evaluations.values())
    note = f"Brackets and bars: {' and '.join(levels)} intervals ({method['intervals']})."
    if len(data.evaluations) > 1:
        note += (
            f" Differences: {100 * method['confidence']:g} % intervals, of pairs, the games that both played, where those are at least half of "
            "the smaller one's; else of each side's own games (bootstrap; rates: Newcombe). Better episode: chance that an "
            "episode of the first exceeds one of the other, ties count half."
        )
    return note


def _note(data: RunData) -> str:
    return f"{_played(data)} {_method(data)}"


def otherwise_rated(data: RunData, other: str) -> str:
    """A note if another reward rated the evaluation `other` than the first; '' if not, or if one is unrated."""
    name, *_ = data.evaluations
    both = data.evaluations[name], data.evaluations[other]
    what = reward_differences(*both) if all(REWARD in one["measures"] for one in both) else ""
    return what and (
        f"{name} and {other} were rated by different rewards ({what}): their intrinsic returns are not compared. Evaluate both with the "
        "same config.reward."
    )
