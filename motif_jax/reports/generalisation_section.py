"""Tests of generalisation on a run's page: agents by test, with what each test changes; and success by kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.envs.babyai_text import catalogue
from motif_jax.reports import charts, html
from motif_jax.reports.charts import Interval
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_interval, format_value
from motif_jax.reports.run_data import RunData
from motif_jax.reports.statistics import Difference, Estimate, bootstrap, wilson_interval

# Of the mean return by kind.
_RESAMPLES = 2000


def section(tests: Mapping[str, Mapping[str, Any]]) -> str:
    """Success in each test and its change against none, as table and plot; nothing without tests.

    Args:
      tests: by player, as `generalisation_files.read` returns them.
    """
    if not tests:
        return ""
    header = ["test", "what is changed"]
    for player in tests:
        header += [f"{player}: success", "change"]
    names = list(dict.fromkeys(test["name"] for found in tests.values() for test in found["tests"]))
    changes = {test["name"]: test["what"] for found in tests.values() for test in found["tests"]}
    rows = []
    for name in names:
        cells = [TableCell(name), TableCell(changes[name])]
        for found in tests.values():
            test = next((each for each in found["tests"] if each["name"] == name), None)
            cells += (
                [TableCell("not taken"), TableCell("")] if test is None else _cells(test, name == names[0])
            )
        rows.append(cells)
    figures = []
    for player, found in tests.items():
        shown = [
            Interval(test["name"], rate["value"], rate["low"], rate["high"], 0)
            for test in found["tests"]
            for rate in (test["success"],)
        ]
        label = f"success of {player}"
        figures.append(html.figure(label, charts.interval_chart(shown, "success rate", label)))
    some = next(iter(tests.values()))
    note = (
        f"{some['episodes']} episodes a test, of the same seeds in every test and for every player; {100 * some['confidence']:g} % intervals. "
        "Change: against the same episodes without any change."
    )
    table = html.table(header, rows, "tests-table")
    return html.section("Tests of generalisation", "tests", table, html.grid(*figures), note=note)


def _cells(test: Mapping[str, Any], first: bool) -> list[TableCell]:
    success, change = Estimate(**test["success"]), Difference(**test["success_change"])
    cells = [TableCell(format_value(success.value), success.value, note=format_interval(success))]
    if first:
        return [*cells, TableCell("")]
    return [*cells, TableCell(f"{change.value:+.3f}", change.value, note=format_interval(change))]


def by_kind(data: RunData) -> str:
    """Success and return of each kind of task, of evaluations whose level has several; nothing without one."""
    rows = []
    for name, evaluation in data.evaluations.items():
        level = catalogue.LEVELS.get(evaluation["plan"]["environment"])
        for place, kind in enumerate(level.kinds if level is not None else ()):
            played = [row for row in evaluation["rows"] if row.get("kind") == place]
            if not played:
                continue
            solved, returns = (np.array([row[key] for row in played], float) for key in ("success", "return"))
            rate = wilson_interval(solved, evaluation["confidence"])
            earned = bootstrap(returns, [lambda x: x.mean(-1)], _RESAMPLES, evaluation["confidence"])[0]
            rows.append(
                [
                    TableCell(name),
                    TableCell(kind),
                    TableCell(f"{len(played):,}", len(played)),
                    TableCell(format_value(rate.value), rate.value, note=format_interval(rate)),
                    TableCell(format_value(earned.value), earned.value, note=format_interval(earned)),
                ]
            )
    if not rows:
        return ""
    header = ("evaluation", "kind of task", "episodes", "success rate", "mean return")
    return html.section("By kind of task", "kinds", html.table(header, rows, "kinds-table"))
