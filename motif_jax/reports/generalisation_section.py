"""Sections of a run's page on generalisation: the change in each test by agent, and success by kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from motif_jax.display.charts import Interval, Plot
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import format_interval
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.display.statistics import Difference, Estimate, mean_of
from motif_jax.envs.babyai_text import catalogue
from motif_jax.reports.run_data import RunData


def section(tests: Mapping[str, Mapping[str, Any]]) -> Section | None:
    """Success in each test and its change against the unchanged task, by player, as table and plot; None without tests."""
    if not tests:
        return None
    header = ["test", "what is changed"]
    for player in tests:
        header += [f"{player}: success", "change"]
    changes = {test["name"]: test["what"] for found in tests.values() for test in found["tests"]}
    rows = []
    for place, (name, what) in enumerate(changes.items()):
        cells = [TableCell(name), TableCell(what)]
        for found in tests.values():
            taken = (_cells(test, place == 0) for test in found["tests"] if test["name"] == name)
            cells += next(taken, [TableCell("not taken"), TableCell("")])
        rows.append(cells)
    shown = {p: [Interval(t["name"], **t["success"]) for t in found["tests"]] for p, found in tests.items()}
    axes = ("success rate", "")
    plots = [Plot(f"success of {p}", *axes, intervals=intervals) for p, intervals in shown.items()]
    some = next(iter(tests.values()))
    note = (
        f"{some['episodes']} episodes a test, of the same seeds in every test and for every player; {100 * some['confidence']:g} % intervals. "
        "Change: against the same episodes without any change."
    )
    return Section("Tests of generalisation", "tests", [Table("tests-table", header, rows), *plots], note)


def _cells(test: Mapping[str, Any], first: bool) -> list[TableCell]:
    change = Difference(**test["success_change"])
    shown = TableCell(f"{change.value:+.3f}", change.value, note=format_interval(change))
    return [estimate_cell(Estimate(**test["success"])), TableCell("") if first else shown]


def by_kind(data: RunData) -> Section | None:
    """Success and return by kind of task, for evaluations whose level has several kinds; None without one."""
    rows = []
    for name, evaluation in data.evaluations.items():
        level = catalogue.LEVELS.get(evaluation["plan"]["environment"])
        for place, kind in enumerate(level.kinds if level is not None else ()):
            if played := [row for row in evaluation["rows"] if row.get("kind") == place]:
                measured = {key: [row[key] for row in played] for key in ("success", "return")}
                how = evaluation["confidence"]
                means = (mean_of(of, key == "success", confidence=how) for key, of in measured.items())
                rows.append([name, kind, number_cell(len(played), ","), *map(estimate_cell, means)])
    header = ("evaluation", "kind of task", "episodes", "success rate", "mean return")
    return Section("By kind of task", "kinds", [Table("kinds-table", header, rows)]) if rows else None
