"""Sections of a run's page on generalisation: the change in each test by agent, and success by kind
of task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from motif_jax.display.charts import Interval, Plot
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.measures import format_interval, mean
from motif_jax.display.page import Section, Table, estimate_cell
from motif_jax.display.statistics import Difference, Estimate
from motif_jax.envs.babyai_text import catalogue
from motif_jax.reports.run_data import RunData


def section(tests: Mapping[str, Mapping[str, Any]]) -> Section | None:
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
            cells += _cells(summary, name, is_unchanged=number == 0)
        rows.append(cells)

    plots = []
    for player, summary in tests.items():
        intervals = [Interval(test["name"], **test["success"]) for test in summary["tests"]]
        plots.append(Plot(f"success of {player}", "success rate", "", intervals=intervals))
    note = f"{_played(tests)} Change: against the same episodes without any change."
    return Section(
        "Tests of generalisation", "tests", [Table("tests-table", header, rows), *plots], note
    )


def _played(tests: Mapping[str, Mapping[str, Any]]) -> str:
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


def _cells(summary: Mapping[str, Any], name: str, is_unchanged: bool) -> list[TableCell]:
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


def by_kind(data: RunData) -> Section | None:
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
