"""Sections of a run's page that show evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import html
from motif_jax.display.charts import Interval, Plot
from motif_jax.display.html import TableCell
from motif_jax.display.measures import (
    RESULT,
    Measure,
    difference,
    format_estimate,
    format_pairs,
    in_order,
    measure,
    progress_keys,
    with_unit,
)
from motif_jax.display.page import Fold, Section, Table, estimate_cell
from motif_jax.display.statistics import (
    Difference,
    Summary,
    matched,
    probability_of_improvement,
)
from motif_jax.play.evaluation_files import REWARD, comparable, games, reward_differences
from motif_jax.reports.run_data import RunData


def summaries(evaluation: Mapping[str, Any]) -> dict[str, Summary]:
    """The summaries of an evaluation.json by key."""
    return {key: Summary.from_dict(value) for key, value in evaluation["measures"].items()}


class MeasureRow(NamedTuple):
    """A measure of all evaluations; `against` comparable ones the first's difference, and the
    chance that its value of an episode is above theirs.
    """

    measure: Measure
    summaries: dict[str, Summary]
    against: dict[str, tuple[Difference, float]]

    @property
    def is_zero(self) -> bool:
        """Whether it is 0 in every game."""
        return all(summary.minimum == summary.maximum == 0 for summary in self.summaries.values())


def rows_of(data: RunData) -> list[MeasureRow]:
    """The measures of the evaluations side by side, for the page and for files."""
    by_name = {name: summaries(evaluation) for name, evaluation in data.evaluations.items()}
    rows = []
    for key in in_order(key for measures in by_name.values() for key in measures):
        of_key = {name: measures[key] for name, measures in by_name.items() if key in measures}
        row = MeasureRow(measure(key), of_key, against(data, key))
        # Other rows of zeros say nothing.
        if key in RESULT or not row.is_zero:
            rows.append(row)
    return rows


def against(data: RunData, key: str) -> dict[str, tuple[Difference, float]]:
    """The field `MeasureRow.against` of the measure `key`."""
    name, *others = data.evaluations
    first = data.evaluations[name]
    first_games = games(first, key)
    comparisons = {}
    for other in others:
        second = data.evaluations[other]
        other_games = games(second, key)
        # A measure that only some episodes have would compare these alone.
        is_complete = len(first_games) == len(first["rows"]) and len(other_games) == len(
            second["rows"]
        )
        if not first_games or not is_complete or not comparable(first, second, key):
            continue
        gap = difference(key, *matched(first_games, other_games), confidence=first["confidence"])
        chance = probability_of_improvement(
            np.array(list(first_games.values())), np.array(list(other_games.values()))
        )
        comparisons[other] = (gap, chance)
    return comparisons


def _cells(row: MeasureRow, names: list[str], with_iqm: bool) -> list[TableCell]:
    """The row of a table, under the titles of `_header`."""
    cells = [TableCell(with_unit(row.measure))]
    for name in names:
        is_measured = name in row.summaries
        cells.append(
            estimate_cell(row.summaries[name].mean) if is_measured else TableCell("not measured")
        )
    for other in names[1:]:
        if other in row.against:
            gap, chance = row.against[other]
            cells.append(estimate_cell(gap, format_pairs(gap)))
            cells.append(TableCell(f"{100 * chance:.0f} %", chance))
        else:
            cells += [TableCell(""), TableCell("")]
    if with_iqm:
        for name in names:
            # A rate's values are 0 and 1: their middle half says nothing.
            has_iqm = name in row.summaries and not row.summaries[name].rate
            cells.append(estimate_cell(row.summaries[name].iqm) if has_iqm else TableCell(""))
    return cells


def _header(names: list[str], with_iqm: bool) -> list[str]:
    header = ["measure", *(f"{name}: mean" for name in names)]
    for other in names[1:]:
        header += [f"{names[0]} minus {other}", f"episodes above {other}"]
    if with_iqm:
        header += [f"{name}: interquartile mean" for name in names]
    return header


def _interval_plots(rows: Sequence[MeasureRow], names: list[str]) -> list[Plot]:
    plots = []
    for row in rows:
        intervals = []
        # An evaluation has the same colour in all charts, also where another lacks a measure.
        for colour, name in enumerate(names):
            if name in row.summaries:
                mean = row.summaries[name].mean
                label = f"{name} (n = {row.summaries[name].n})"
                intervals.append(Interval(label, mean.value, mean.low, mean.high, colour))
        described = row.measure
        plots.append(
            Plot(
                described.title,
                f"mean {with_unit(described)}",
                "",
                intervals=intervals,
                note=described.meaning,
                file=f"evaluation_{described.key}",
            )
        )
    return plots


def _main_keys(rows: Sequence[MeasureRow], named: Mapping[str, int]) -> set[str]:
    return {REWARD, "length", *progress_keys((row.measure.key for row in rows), named)}


def evaluation_section(data: RunData) -> Section:
    """The evaluations side by side: reward and progress in a table, all measures with charts of
    their intervals in a fold.
    """
    if not data.evaluations:
        return Section("Evaluation", "evaluation", [html.nothing("no evaluation was given")])
    names = list(data.evaluations)
    rows = rows_of(data)
    main_keys = _main_keys(rows, data.progress)
    main_cells = [
        _cells(row, names, with_iqm=False) for row in rows if row.measure.key in main_keys
    ]
    all_cells = [_cells(row, names, with_iqm=True) for row in rows]
    note = f"{_played(data)} {_method(data)}"
    full = Table(
        "evaluation-table", _header(names, with_iqm=True), all_cells, note=note, in_files=True
    )
    fold = Fold(
        f"all {len(rows)} measures: interquartile means, intervals as charts, how they are computed",
        [
            f'<p class="explain">{html.escape(_method(data))}</p>',
            full,
            *_interval_plots(rows, names),
        ],
    )
    table = Table("result-table", _header(names, with_iqm=False), main_cells)
    return Section("Evaluation", "evaluation", [table, fold], _played(data))


def comparison(data: RunData) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the evaluations' reward and progress side by side, narrow enough for a
    terminal.
    """
    names = list(data.evaluations)
    rows = rows_of(data) if names else []
    main_keys = _main_keys(rows, data.progress)
    header = ["measure (unit)", *names, *(f"{names[0]} minus {other}" for other in names[1:])]
    cells = []
    for row in rows:
        if row.measure.key not in main_keys:
            continue
        line = [with_unit(row.measure)]
        for name in names:
            line.append(format_estimate(row.summaries[name].mean) if name in row.summaries else "")
        for other in names[1:]:
            line.append(format_estimate(row.against[other][0]) if other in row.against else "")
        cells.append(line)
    return header, cells


def _played(data: RunData) -> str:
    """Who played what, and which are not compared."""
    played = "; ".join(
        f"{name}: n = {evaluation['episodes']} episodes of {evaluation['plan']['environment']}"
        for name, evaluation in data.evaluations.items()
    )
    warnings = [otherwise_rated(data, other) for other in data.evaluations]
    return " ".join(filter(None, [f"{played}.", *warnings]))


def _method(data: RunData) -> str:
    """How intervals and differences are computed."""
    first = next(iter(data.evaluations.values()))
    levels = dict.fromkeys(
        f"{100 * evaluation['confidence']:g} %" for evaluation in data.evaluations.values()
    )
    note = f"Brackets and bars: {' and '.join(levels)} intervals ({first['intervals']})."
    if len(data.evaluations) > 1:
        note += (
            f" Differences: {100 * first['confidence']:g} % intervals, of pairs, the games that both played, where those are at least half of "
            "the smaller one's; else of each side's own games (bootstrap; rates: Newcombe). Episodes above: the chance that an "
            "episode of the first exceeds one of the other, ties count half."
        )
    return note


def otherwise_rated(data: RunData, other: str) -> str:
    """A note if another reward rated the evaluation `other` than the first; '' if not, or if one is
    unrated.
    """
    name = next(iter(data.evaluations))
    first = data.evaluations[name]
    second = data.evaluations[other]
    if REWARD not in first["measures"] or REWARD not in second["measures"]:
        return ""
    differences = reward_differences(first, second)
    if not differences:
        return ""
    return (
        f"{name} and {other} were rated by different rewards ({differences}): their intrinsic returns are not compared. Evaluate both with the "
        "same config.reward."
    )
