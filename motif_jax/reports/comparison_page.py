"""The page, tables and plots of a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from motif_jax.display import html
from motif_jax.display.charts import Interval, Plot, Series
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import format_interval, format_pairs, measure, with_unit
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.reports import efficiency
from motif_jax.reports.claims import Finding, SideBySide
from motif_jax.reports.comparison import IQM_SCORES, Comparison
from motif_jax.reports.efficiency import Learned
from motif_jax.reports.probe_report import Probes, heatmap
from motif_jax.reports.smoothing import LEAST
from motif_jax.reports.smoothing import RESAMPLES as CURVE_RESAMPLES


@dataclass
class ComparisonData:
    """The data of the page: `curves` by task (dashed ones come from the file `published`), `probes`
    by name.

    `measure` has its unit; the trainings in `learned` are compared up to `efficiency_steps` or the
    end of the shortest.
    """

    title: str
    comparison: Comparison | None = None
    measure: str = ""
    curves: dict[str, list[Series]] = field(default_factory=dict)
    published: str = ""
    learned: list[Learned] = field(default_factory=list)
    efficiency_steps: int | None = None
    probes: dict[str, Probes] = field(default_factory=dict)
    claims: SideBySide | None = None
    provenance: list[tuple[str, str]] = field(default_factory=list)


# Runs -> coverage of a 95 % bootstrap interval of the mean where scores are normally distributed.
COVERAGE = {2: 50, 3: 75, 4: 80, 5: 84, 6: 86, 7: 87, 8: 89, 9: 89, 10: 90}


def _method_note(result: Comparison, statistics: bool = True) -> str:
    """How intervals over runs were computed; with `statistics` also what the columns of the table
    are.
    """
    runs = {method: len(values) for method, values in result.scores.by_method.items()}
    tasks = len(result.scores.tasks)
    parts = [
        f"Stratified bootstrap over runs, {result.resamples:,} resamples, intervals of 95 % (rliable; Agarwal et al. 2021). A "
        "run's score on a task is the mean of its evaluated episodes."
    ]
    if statistics and tasks > 1:
        parts.append("Median of task means: the middle one of the tasks' means over runs.")
    elif statistics:
        parts.append("Median: the middle one of the runs.")
    few = [method for method, number in runs.items() if number * tasks < IQM_SCORES]
    if few and statistics:
        parts.append(
            f"The interquartile mean needs {IQM_SCORES} scores, with fewer it leaves none out: there is none of {', '.join(few)}."
        )
    single = [method for method, number in runs.items() if number == 1]
    if single:
        parts.append(f"One run has no interval (n/a): {', '.join(single)}.")
    fewest = min((number for number in runs.values() if number > 1), default=0)
    if fewest in COVERAGE:
        parts.append(
            f"Intervals over few runs are too narrow: of {fewest} normally distributed ones they hold the true mean in "
            f"{COVERAGE[fewest]} of 100 cases."
        )
    return " ".join(parts)


def _aggregates(label: str, result: Comparison) -> Section:
    runs = {method: len(values) for method, values in result.scores.by_method.items()}
    methods = list(runs)
    plots = []
    for statistic, estimates in result.aggregates.items():
        intervals = [
            Interval(
                f"{method} (n = {runs[method]})",
                estimate.value,
                estimate.low,
                estimate.high,
                methods.index(method),
            )
            for method, estimate in estimates.items()
            if math.isfinite(estimate.value)
        ]
        file = "aggregate_" + statistic.replace(" ", "_")
        plots.append(Plot(statistic, label, "", intervals=intervals, file=file))

    rows = []
    for method, count in runs.items():
        cells = [estimate_cell(estimates[method]) for estimates in result.aggregates.values()]
        rows.append((method, number_cell(count, ""), *cells))
    table = Table("aggregate-table", ("method", "runs", *result.aggregates), rows, in_files=True)
    tasks = result.scores.tasks
    scope = f"{len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
    return Section(
        "Over all runs and tasks",
        "aggregates",
        [table, *plots],
        f"{label}; {scope}. {_method_note(result)}",
    )


def _contrasts(label: str, result: Comparison) -> Section:
    rows: list[tuple[Any, ...]] = []
    for contrast in result.contrasts:
        over_games = contrast.over_games
        games_cell = (
            "n/a" if over_games is None else estimate_cell(over_games, format_pairs(over_games))
        )
        methods = f"{contrast.first} minus {contrast.other}"
        rows.append((contrast.task, methods, estimate_cell(contrast.over_runs), games_cell))
    header: tuple[str, ...] = ("task", "methods", "difference over runs", "difference over games")
    averaged = ", averaged over tasks"
    if len(result.scores.tasks) == 1:
        # Saves the width of a column whose cells are all equal.
        rows = [row[1:] for row in rows]
        header = header[1:]
        averaged = ""
    table = Table(
        "difference-table", header, rows, in_files=True, empty="only one method was given"
    )
    note = (
        f"{label}. Mean of the first method minus mean of the other{averaged}; "
        f"bootstrap, {result.resamples:,} resamples, 95 %; of rates over the games of one task, one run each and not scaled, Newcombe's interval. Over runs: would other trainings differ as much? Runs are drawn "
        "by method and task (n/a with one run on a side). Over games: would these very runs on other games? Games that both "
        "played are drawn as pairs (how many is said), else each side by itself. Where 0 lies outside an interval, its question "
        "has a clear answer; of many differences without any, one in 20 looks clear by chance."
    )
    return Section("Differences", "differences", [table], note)


def _improvement(result: Comparison) -> Section:
    rows = []
    for (better, other), chance in result.improvement.items():
        interval = format_interval(chance)
        if math.isfinite(chance.low) and math.isfinite(chance.high):
            interval = f"[{100 * chance.low:.0f} %, {100 * chance.high:.0f} %]"
        cell = TableCell(f"{100 * chance.value:.0f} %", chance.value, note=interval)
        rows.append((better, other, cell))
    header = ("method", "against", "probability of improvement")
    table = Table(
        "improvement-table", header, rows, in_files=True, empty="only one method was given"
    )
    note = (
        "The chance that a run of the method scores above a run of the other, averaged over tasks; 50 % is no "
        f"difference. {_method_note(result, statistics=False)}"
    )
    return Section("Probability of improvement", "improvement", [table], note)


def _profiles(label: str, result: Comparison) -> Section:
    plot = Plot(
        "score distribution",
        label,
        "share of runs above",
        result.profiles,
        note="the higher the curve, the better",
        file="profiles",
    )
    note = f"Bands: stratified bootstrap over runs, {result.profile_resamples:,} resamples, 95 %; none for one run."
    return Section("Performance profiles", "profiles", [plot], note)


def _by_task(label: str, result: Comparison) -> Section:
    methods = tuple(result.scores.by_method)
    rows = []
    for task, means in result.by_task.items():
        rows.append((task, *(estimate_cell(means[method]) for method in methods)))
    table = Table("task-table", ("task", *methods), rows, in_files=True, search=True)
    note = f"Mean of {label} over runs. Percentile bootstrap over the runs of the task, {result.resamples:,} resamples, intervals of 95 %."
    return Section("By task", "tasks", [table], note)


def curves_section(plots: Sequence[Plot], published: str = "") -> Section:
    """The section of learning curves (`smoothing.learning_curve`); dashed ones are from the file
    `published`.
    """
    note = (
        f"Smoothed: finished episodes are averaged over stretches of steps, each so long that every run ended at least {LEAST} in "
        f"it (a fifth of all where a run has fewer than {5 * LEAST}). Lines: interquartile mean over seeds, of fewer than {IQM_SCORES} the mean. "
        f"Bands: 95 % bootstrap interval over seeds ({CURVE_RESAMPLES} resamples; none with one seed). Up to the end of the shortest run."
    )
    if published:
        note += f" Dashed: published results, read from {published}."
    return Section("Learning curves", "curves", plots, note)


def _probes(data: ComparisonData) -> Section:
    note = (
        "What agents of the published tool would do in its fixed situations (distrib.csv). One row per action, one column per update; a stronger "
        "colour is a higher probability. Scores that are not probabilities are turned into them by softmax."
    )
    parts = []
    for name, probes in data.probes.items():
        figures = [
            html.figure(f"{name}, {probe}", heatmap(probes, index))
            for index, probe in enumerate(probes.names)
        ]
        parts.append(html.grid(*figures))
    return Section("Probes", "probes", parts, note)


def _sentence(finding: Finding) -> str:
    claim = finding.claim
    gap = finding.difference
    verb = "has more" if finding.holds else "is not shown to have more"
    return (
        f"{claim.more} {verb} {measure(claim.measure).title} than {claim.other_side}: {gap.value:+.3g} a game, 95 % interval "
        f"{format_interval(gap)} over {format_pairs(gap)}."
    )


def _side_by_side(result: SideBySide) -> Section:
    rows = []
    for key, means in result.means.items():
        title_cell = TableCell(with_unit(measure(key)), note=measure(key).meaning)
        rows.append([title_cell, *map(estimate_cell, means.values())])
    note = (
        "Means of a game with intervals of 95 %. A claim holds where the whole interval of its difference, game by game where both played "
        "the same, lies above 0, or above the number that is added."
    )
    sentences = list(map(_sentence, result.findings))
    header = ["mean of a game", *next(iter(result.means.values()), {})]
    table = Table("means", header, rows, note=" ".join([note, *sentences]), in_files=True)
    verdicts = [
        html.verdict(sentence, "good" if finding.holds else "bad")
        for sentence, finding in zip(sentences, result.findings, strict=True)
    ]
    return Section("Side by side", "claims", [*verdicts, table], note)


def sections(data: ComparisonData) -> list[Section]:
    """The sections of the page, in order."""
    page: list[Section] = []
    if data.claims is not None:
        page.append(_side_by_side(data.claims))
    result = data.comparison
    if result is not None:
        label = f"{data.measure} ({result.scores.unit})" if result.scores.unit else data.measure
        page.append(_aggregates(label, result))
        page.append(_contrasts(label, result))
        page.append(_improvement(result))
        page.append(_profiles(label, result))
        page.append(_by_task(label, result))
    if data.curves:
        plots = [
            Plot(task, "environment steps", data.measure, lines, file=f"curves_{task}")
            for task, lines in data.curves.items()
        ]
        page.append(curves_section(plots, data.published))
    if data.learned:
        page.append(efficiency.section(data.learned, data.efficiency_steps, data.measure))
    if data.probes:
        page.append(_probes(data))
    if not page:
        page.append(Section("Nothing", "nothing", [html.nothing("nothing was given to compare")]))
    if data.provenance:
        parts = [html.details(*text) for text in data.provenance]
        page.append(Section("How it was made", "provenance", parts))
    return page
