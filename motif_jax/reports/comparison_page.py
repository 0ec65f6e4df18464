"""The page, tables and plots of a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motif_jax.reports import charts, claims_page, efficiency, html, text_tables
from motif_jax.reports.charts import Interval, Series
from motif_jax.reports.claims import SideBySide
from motif_jax.reports.comparison import IQM_SCORES, Comparison
from motif_jax.reports.efficiency import Learned
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_estimate, format_interval, format_pairs, format_value
from motif_jax.reports.plots import Plot
from motif_jax.reports.probes import Probes, heatmaps
from motif_jax.reports.smoothing import LEAST
from motif_jax.reports.smoothing import RESAMPLES as CURVE_RESAMPLES
from motif_jax.reports.statistics import Difference, Estimate


@dataclass
class ComparisonData:
    """The data of the page.

    Attributes:
      title: of the page.
      comparison: of evaluations, None when none were given.
      measure: what is compared, with its unit.
      curves: task -> learning curves, published ones dashed.
      curve_label: what the curves show, with its unit.
      published: file that published curves come from.
      learned: the trainings whose curves these are.
      efficiency_steps: up to which step they are compared; None: the end of the shortest.
      probes: of runs of the published tool, by name.
      claims: measures side by side with what is claimed of them; None where neither was asked for.
      provenance: (name, text).
    """

    title: str
    comparison: Comparison | None = None
    measure: str = ""
    curves: dict[str, list[Series]] = field(default_factory=dict)
    curve_label: str = ""
    published: str = ""
    learned: list[Learned] = field(default_factory=list)
    efficiency_steps: int | None = None
    probes: dict[str, Probes] = field(default_factory=dict)
    claims: SideBySide | None = None
    provenance: list[tuple[str, str]] = field(default_factory=list)


# Of runs whose scores are normally distributed, how often a bootstrap interval of 95 % of their mean holds the truth.
COVERAGE = {2: 50, 3: 75, 4: 80, 5: 84, 6: 86, 7: 87, 8: 89, 9: 89, 10: 90}


def method_note(result: Comparison, statistics: bool = True) -> str:
    """Says how the numbers of a comparison and their intervals are made, and what the `statistics` are."""
    runs = {method: len(values) for method, values in result.scores.by_method.items()}
    tasks = len(result.scores.tasks)
    parts = [
        f"Stratified bootstrap over runs, {result.resamples:,} resamples, intervals of 95 % (rliable; Agarwal et al. 2021). A "
        "run's score on a task is the mean of its evaluated episodes."
    ]
    if statistics and tasks == 1:
        parts.append("Median: the middle one of the runs.")
    elif statistics:
        parts.append("Median of task means: the middle one of the tasks' means over runs.")
    few = [method for method, number in runs.items() if number * tasks < IQM_SCORES]
    if few and statistics:
        parts.append(
            f"No interquartile mean of fewer than {IQM_SCORES} scores, of which it would leave none out: {', '.join(few)}."
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


def contrast_note(result: Comparison) -> str:
    """Says how differences and their intervals are made."""
    return (
        f"Mean of the first method minus mean of the other{', averaged over tasks' if len(result.scores.tasks) > 1 else ''}; "
        f"bootstrap, {result.resamples:,} resamples, 95 %. Over runs: would other trainings differ as much? Runs are drawn "
        "by method and task (n/a with one run on a side). Over games: would these very runs on other games? Games that both "
        "played are drawn as pairs (how many is said), else each side by itself. Where 0 lies outside an interval, its question "
        "has a clear answer; of many differences without any, one in 20 looks clear by chance."
    )


def task_note(result: Comparison) -> str:
    """Says how the intervals of a single task are made."""
    return (
        f"Percentile bootstrap over the runs of the task, {result.resamples:,} resamples, intervals of 95 %."
    )


def aggregate_table(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns header and rows: one row per method, one column per statistic."""
    names = tuple(result.aggregates)
    rows = [
        (method, str(values.shape[0]), *(format_estimate(result.aggregates[name][method]) for name in names))
        for method, values in result.scores.by_method.items()
    ]
    return ("method", "runs", *names), rows


def task_table(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns header and rows: one row per task, one column per method, means over runs."""
    methods = tuple(result.scores.by_method)
    rows = [
        (task, *(format_estimate(of[method]) for method in methods)) for task, of in result.by_task.items()
    ]
    return ("task", *methods), rows


def improvement_table(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns header and rows: the probability that a run of the first method beats one of the second."""
    rows: list[tuple[str, ...]] = [
        (a, b, format_estimate(estimate)) for (a, b), estimate in result.improvement.items()
    ]
    return ("method", "against", "probability of improvement"), rows


def contrast_table(result: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns header and rows: the difference of every two methods, with its interval over runs and over games."""
    rows: list[tuple[str, ...]] = [
        (c.task, f"{c.first} minus {c.other}", format_estimate(c.over_runs), _over_games(c.over_games))
        for c in result.contrasts
    ]
    return ("task", "methods", "difference over runs", "difference over games"), rows


def _over_games(difference: Difference | None) -> str:
    if difference is None:
        return "n/a"
    return f"{format_estimate(difference)} ({format_pairs(difference)})"


def tables(data: ComparisonData) -> dict[str, str]:
    """Returns the texts of comparison.md and comparison.tex."""
    parts: list[tuple[str, str, str, tuple[Sequence[str], Sequence[tuple[str, ...]]]]] = []
    if (result := data.comparison) is not None:
        over_all, of_task = method_note(result), task_note(result)
        parts = [
            ("aggregates", f"{data.measure}, aggregated over runs and tasks", over_all, aggregate_table(result)),
            ("tasks", f"{data.measure}, mean over runs", of_task, task_table(result)),
            ("differences", f"{data.measure}, differences", contrast_note(result), contrast_table(result)),
            ("improvement", "Probability of improvement", method_note(result, statistics=False), improvement_table(result)),
        ]  # fmt: skip
    if data.claims is not None:
        note = claims_page.note(data.claims)
        parts.append(("claims", "Side by side", note, claims_page.table(data.claims)))
    if data.learned:
        learned = efficiency.text_table(data.learned, data.efficiency_steps)
        parts.append(("efficiency", "Sample efficiency", efficiency.note(data.curve_label), learned))
    escape = text_tables.markdown_escape
    markdown = [f"# {escape(data.title)}", ""]
    latex = []
    for label, caption, note, (header, rows) in parts:
        if rows:
            markdown += [f"## {escape(caption)}", "", escape(note), "", text_tables.markdown(header, rows)]
            latex.append(text_tables.latex(header, rows, f"{caption}. {note}", f"tab:{label}"))
    return {"comparison.md": "\n".join(markdown), "comparison.tex": "\n".join(latex)}


def _estimates(of: Mapping[str, Estimate], result: Comparison) -> list[Interval]:
    order = list(result.scores.by_method)
    return [
        Interval(f"{m} (n = {result.scores.by_method[m].shape[0]})", e.value, e.low, e.high, order.index(m))
        for m, e in of.items()
        if math.isfinite(e.value)
    ]


def _cells(
    rows: Sequence[tuple[str, Mapping[str, Estimate]]], methods: Sequence[str]
) -> list[list[TableCell]]:
    return [
        [
            TableCell(name),
            *(_estimate_cell(of[m]) for m in methods),
        ]
        for name, of in rows
    ]


def _estimate_cell(estimate: Estimate) -> TableCell:
    if not math.isfinite(estimate.value):
        return TableCell("n/a")
    return TableCell(format_value(estimate.value), estimate.value, note=format_interval(estimate))


def _label(data: ComparisonData, result: Comparison) -> str:
    return f"{data.measure} ({result.scores.unit})" if result.scores.unit else data.measure


def _aggregates(data: ComparisonData, result: Comparison) -> str:
    methods, label = tuple(result.scores.by_method), _label(data, result)
    figures = [
        html.figure(name, charts.interval_chart(_estimates(of, result), label, f"{name} of {label}"))
        for name, of in result.aggregates.items()
    ]
    counts = ", ".join(f"{m}: n = {values.shape[0]} runs" for m, values in result.scores.by_method.items())
    tasks = f"{len(result.scores.tasks)} tasks" if len(result.scores.tasks) > 1 else result.scores.tasks[0]
    rows = _cells(list(result.aggregates.items()), methods)
    return html.section(
        "Over all runs and tasks",
        "aggregates",
        html.table(("statistic", *methods), rows, "aggregate-table"),
        html.grid(*figures),
        note=f"{label}; {counts}; {tasks}. {method_note(result)}",
    )


def _contrasts(data: ComparisonData, result: Comparison) -> str:
    rows = []
    for c in result.contrasts:
        games = TableCell("n/a")
        if c.over_games is not None:
            note = f"{format_interval(c.over_games)}, {format_pairs(c.over_games)}"
            games = TableCell(format_value(c.over_games.value), c.over_games.value, note=note)
        rows.append(
            (TableCell(c.task), TableCell(f"{c.first} minus {c.other}"), _estimate_cell(c.over_runs), games)
        )
    header = ("task", "methods", "over runs", "over games")
    single = len(result.scores.tasks) == 1  # a narrow window has no room for a column that says one thing
    return html.section(
        "Differences",
        "differences",
        html.table(
            header[single:],
            [row[single:] for row in rows],
            "difference-table",
            empty="only one method was given",
        ),
        note=f"{_label(data, result)}. {contrast_note(result)}",
    )


def _improvement(result: Comparison) -> str:
    rows = []
    for (a, b), e in result.improvement.items():
        known = math.isfinite(e.low) and math.isfinite(e.high)
        interval = f"[{100 * e.low:.0f} %, {100 * e.high:.0f} %]" if known else format_interval(e)
        rows.append((TableCell(a), TableCell(b), TableCell(f"{100 * e.value:.0f} %", e.value, note=interval)))
    header = ("method", "against", "probability")
    return html.section(
        "Probability of improvement",
        "improvement",
        html.table(header, rows, "improvement-table", empty="only one method was given"),
        note="The chance that a run of the method scores above a run of the other, averaged over tasks; 50 % is no "
        f"difference. {method_note(result, statistics=False)}",
    )


def _profiles(data: ComparisonData, result: Comparison) -> str:
    label = _label(data, result)
    profile = charts.line_chart(result.profiles, label, "share of runs above", "performance profiles")
    return html.section(
        "Performance profiles",
        "profiles",
        html.grid(html.figure("score distribution", profile, "the higher the curve, the better")),
        note=f"Bands: stratified bootstrap over runs, {result.profile_resamples:,} resamples, 95 %; none for one run.",
    )


def _tasks(data: ComparisonData, result: Comparison) -> str:
    methods = tuple(result.scores.by_method)
    rows = _cells(list(result.by_task.items()), methods)
    table = html.table(("task", *methods), rows, "task-table", search=True)
    return html.section(
        "By task", "tasks", table, note=f"Mean of {_label(data, result)} over runs. {task_note(result)}"
    )


def _curve_note() -> str:
    return (
        f"Smoothed: finished episodes are averaged over stretches of steps, each so long that every run ended at least {LEAST} in "
        f"it (a fifth of all where a run has fewer than {5 * LEAST}). Lines: interquartile mean over seeds, of fewer than {IQM_SCORES} the mean. "
        f"Bands: 95 % bootstrap interval over seeds ({CURVE_RESAMPLES} resamples; none with one seed). Up to the end of the shortest run."
    )


def _curves(data: ComparisonData) -> str:
    note = _curve_note()
    if data.published:
        note += f" Dashed: published results, read from {data.published}."
    figures = [
        html.figure(
            task, charts.line_chart(lines, "environment steps", data.curve_label, f"curves of {task}")
        )
        for task, lines in data.curves.items()
    ]
    return html.section("Learning curves", "curves", html.grid(*figures), note=note)


def _probes(data: ComparisonData) -> str:
    note = (
        "What agents of the published tool would do in its fixed situations (distrib.csv): a row an action, a column an update, the stronger the colour "
        "the likelier. Scores that are no probabilities are turned into them by softmax."
    )
    parts = [
        html.grid(*(html.figure(f"{name}, {title}", drawn) for title, drawn in heatmaps(found)))
        for name, found in data.probes.items()
    ]
    return html.section("Probes", "probes", *parts, note=note)


def render(data: ComparisonData, written: str) -> str:
    """Returns the page."""
    sections = {}
    if data.claims is not None:
        sections["Side by side"] = claims_page.section(data.claims)
    result = data.comparison
    if result is not None:
        sections["Aggregates"] = _aggregates(data, result)
        sections["Differences"] = _contrasts(data, result)
        sections["Improvement"] = _improvement(result)
        sections["Profiles"] = _profiles(data, result)
        sections["By task"] = _tasks(data, result)
    if data.curves:
        sections["Learning curves"] = _curves(data)
    if data.learned:
        sections["Sample efficiency"] = efficiency.section(
            data.learned, data.efficiency_steps, data.curve_label
        )
    if data.probes:
        sections["Probes"] = _probes(data)
    if not sections:
        sections["Nothing"] = charts.empty_chart("nothing was given to compare")
    if data.provenance:
        parts = [html.details(name, text) for name, text in data.provenance]
        sections["How it was made"] = html.section("How it was made", "provenance", *parts)
    names = {
        "Aggregates": "aggregates", "Differences": "differences", "Improvement": "improvement", "Profiles": "profiles", "By task": "tasks",
        "Side by side": "claims", "Learning curves": "curves", "Sample efficiency": "efficiency", "Probes": "probes", "How it was made": "provenance",
    }  # fmt: skip
    links = {name: title for title, name in names.items() if title in sections}
    return html.page(data.title, f"motif_jax, written {written}", list(sections.values()), links)


def plots(data: ComparisonData) -> dict[str, Plot]:
    """Returns the charts as plots for PNG and PDF."""
    found = {}
    if data.comparison is not None:
        for name, of in data.comparison.aggregates.items():
            key = "aggregate_" + name.replace(" ", "_")
            found[key] = Plot(
                f"{name} of {data.measure}", "", intervals=tuple(_estimates(of, data.comparison))
            )
        found["profiles"] = Plot(data.measure, "share of runs above", tuple(data.comparison.profiles))
    for key, lines in efficiency.figures(data.learned, data.efficiency_steps).items():
        found[f"efficiency_{key}"] = Plot(key, f"sample efficiency, {data.curve_label}", tuple(lines))
    for task, lines in data.curves.items():
        found[f"curves_{task}"] = Plot(
            "environment steps", data.curve_label, tuple(lines), note=_curve_note()
        )
    return found
