"""Sections of a run's page that show evaluations: side by side, by kind of task, of text agents
against their divergence from the policy, and tests of generalisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.display import html
from motif_jax.display.charts import Interval, Plot, Series
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import (
    RESULT,
    Measure,
    difference,
    format_estimate,
    format_interval,
    format_pairs,
    in_order,
    mean,
    measure,
    progress_keys,
    with_unit,
)
from motif_jax.display.page import Fold, Section, Table, estimate_cell
from motif_jax.display.statistics import (
    Difference,
    Estimate,
    Summary,
    matched,
    probability_of_improvement,
)
from motif_jax.envs.babyai_text import catalogue
from motif_jax.play.evaluation_files import REWARD, comparable, games, reward_differences
from motif_jax.reports.run_data import RunData


def is_text(evaluation: Mapping[str, Any]) -> bool:
    """Whether `evaluate_text` made the evaluation."""
    return "decode" in evaluation["plan"]


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


def kinds_section(data: RunData) -> Section | None:
    """Success and return by kind of task, for evaluations whose level has several kinds; None
    without one.
    """
    rows = []
    for name, evaluation in data.evaluations.items():
        level = catalogue.LEVELS.get(evaluation["plan"]["environment"])
        kinds = level.kinds if level is not None else ()
        confidence = evaluation["confidence"]
        for number, kind in enumerate(kinds):
            episodes = [row for row in evaluation["rows"] if row.get("kind") == number]
            if not episodes:
                continue
            means = []
            for key in ("success", "return"):
                values = np.array([row[key] for row in episodes])
                means.append(estimate_cell(mean(key, values, confidence=confidence)))
            rows.append([name, kind, number_cell(len(episodes), ","), *means])
    if not rows:
        return None
    header = ("evaluation", "kind of task", "episodes", "success rate", "mean return")
    return Section("By kind of task", "kinds", [Table("kinds-table", header, rows)])


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
        returns = Summary.from_dict(measures["return"]).mean
        # Without advantages the weight changes nothing.
        weight = decode["advantage_weight"] if decode["advantages"] else 0.0
        point = _Point(
            measures["divergence"]["mean"]["value"],
            returns.value,
            returns.low,
            returns.high,
            weight,
        )
        points_of_line.setdefault(name, []).append(point)
    if not points_of_line:
        return None

    lines = []
    rows = []
    for name, points in points_of_line.items():
        # The line runs along the x axis, which is the first field of a point.
        divergence, value, low, high, _ = np.array(sorted(points)).T
        lines.append(Series(name, divergence, value, low, high, bars=True))
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


def generalisation_section(tests: Mapping[str, Mapping[str, Any]]) -> Section | None:
    """Success in each test and its change against the unchanged task, by player, as table and plot;
    None without tests.
    """
    if not tests:
        return None
    header = ["test", "what is changed"]
    for player in tests:
        header += [f"{player}: success", "change"]
    changes = {
        test["name"]: test["what"] for summary in tests.values() for test in summary["tests"]
    }
    rows = []
    for number, (name, change) in enumerate(changes.items()):
        cells = [TableCell(name), TableCell(change)]
        for summary in tests.values():
            # The unchanged task comes first.
            cells += _test_cells(summary, name, is_unchanged=number == 0)
        rows.append(cells)

    plots = []
    for player, summary in tests.items():
        intervals = [Interval(test["name"], **test["success"]) for test in summary["tests"]]
        plots.append(Plot(f"success of {player}", "success rate", "", intervals=intervals))
    note = f"{_played_in_tests(tests)} Change: against the same episodes without any change."
    return Section(
        "Tests of generalisation", "tests", [Table("tests-table", header, rows), *plots], note
    )


def _played_in_tests(tests: Mapping[str, Mapping[str, Any]]) -> str:
    """How many episodes of which seeds there are, and the level of the intervals: of all players
    in one sentence where these are equal.
    """
    played = {
        player: f"{summary['episodes']} episodes a test, {100 * summary['confidence']:g} % intervals"
        for player, summary in tests.items()
    }
    sentences = list(dict.fromkeys(played.values()))
    if len(sentences) > 1:
        sentences = [f"{player}: {sentence}" for player, sentence in played.items()]
    seeds = {summary.get("seed") for summary in tests.values()}
    players = " and for every player" if len(seeds) == 1 else ""
    return f"{'; '.join(sentences)}; the same seeds in every test{players}."


def _test_cells(summary: Mapping[str, Any], name: str, is_unchanged: bool) -> list[TableCell]:
    """A player's success in the test `name`, and its change."""
    for test in summary["tests"]:
        if test["name"] == name:
            success = estimate_cell(Estimate(**test["success"]))
            if is_unchanged:
                return [success, TableCell("")]
            change = Difference(**test["success_change"])
            return [
                success,
                TableCell(f"{change.value:+.3f}", change.value, note=format_interval(change)),
            ]
    return [TableCell("not taken"), TableCell("")]
