"""A language agent's action probabilities in fixed prompts over its training, and the effect of
each clause.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import metric_files
from motif_jax.core.files import read_json, read_json_lines
from motif_jax.display import charts, html
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.page import Section, Table
from motif_jax.envs.babyai_text.probes import CLAUSES, DESCRIPTION, LINES
from motif_jax.published import results

_REMEDY = "remove the file, then probe_language_agent makes it from the run's checkpoints"
_MAX_COLUMNS = 60  # of a heatmap; more updates are thinned out


class Clause(NamedTuple):
    """A clause of a probe's prompt, and what it does to the policy.

    Attributes:
      change: total variation distance, 0 to 1, between the probabilities of all actions with the
          clause and without it.
      action: the action whose probability changes most.
      difference: the probability of `action` with the clause minus that without it.
    """

    probe: str
    text: str
    change: float
    action: str
    difference: float


class Probes(NamedTuple):
    """The contents of a run's probe files.

    `steps` int64 [updates] are environment steps before each update, `probabilities` float64
    [updates, probes, actions]; `clauses` are those at the last update at which clauses were left
    out, by descending `change`.
    """

    actions: tuple[str, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    steps: np.ndarray
    probabilities: np.ndarray
    clauses: tuple[Clause, ...]


def read(folder: str | os.PathLike[str]) -> Probes | None:
    """Reads the probes of train_agent or probe_language_agent; None without them."""
    path = Path(folder) / DESCRIPTION
    if not path.exists():
        return None
    description = read_json(path, _REMEDY)
    rows = list(read_json_lines(Path(folder) / LINES, ("update", "step"), _REMEDY))
    if not rows:
        return None
    probes = description["probes"]
    actions = tuple(description["actions"])
    probabilities = np.array([row["probabilities"] for row in rows], np.float64)
    clause_rows = list(read_json_lines(Path(folder) / CLAUSES, ("update",), _REMEDY))
    row_of_update = {row["update"]: number for number, row in enumerate(rows)}
    clauses: list[Clause] = []
    # Only the last: earlier effects are in the file, and the table would mix parameters.
    if clause_rows and clause_rows[-1]["update"] in row_of_update:
        newest = clause_rows[-1]
        with_all_clauses = probabilities[row_of_update[newest["update"]]]
        clauses = [_clause(row, probes, actions, with_all_clauses) for row in newest["without"]]
    clauses.sort(key=lambda clause: -clause.change)
    return Probes(
        actions,
        tuple(probe["name"] for probe in probes),
        tuple(probe["prompt"] for probe in probes),
        np.array([row["step"] for row in rows], np.int64),
        probabilities,
        tuple(clauses),
    )


def _clause(
    row: dict[str, Any], probes: Sequence[Any], actions: Sequence[str], with_all_clauses: np.ndarray
) -> Clause:
    """A row of clauses.jsonl, against the probabilities float64 [probes, actions] of the whole
    prompts.
    """
    probe = probes[row["probe"]]
    difference = with_all_clauses[row["probe"]] - np.array(row["probabilities"], np.float64)
    largest = int(np.argmax(np.abs(difference)))
    text = probe["observations"][row["observation"]][row["clause"]]
    change = float(np.abs(difference).sum() / 2)
    return Clause(probe["name"], text, change, actions[largest], float(difference[largest]))


def heatmap(probes: Probes, index: int) -> str:
    """One probe as SVG: a row per action, a column per update; a stronger colour is a higher
    probability.
    """
    values = probes.probabilities[:, index]
    steps = probes.steps
    if len(values) > _MAX_COLUMNS:
        chosen = np.linspace(0, len(values) - 1, _MAX_COLUMNS).round().astype(int)
        values = values[chosen]
        steps = steps[chosen]
    figure, axes = charts.new_figure("environment steps", "", 0.6 + 0.2 * len(probes.actions))
    axes.grid(False)
    for row, action in enumerate(probes.actions):
        for column, value in enumerate(values[:, row].tolist()):
            alpha = min(1.0, max(0.0, value))
            # Slightly wider than the column: a gap would show as a white line.
            (cell,) = axes.barh(row, 1.01, 0.92, column, color=charts.COLOURS[0], alpha=alpha)
            charts.set_title(cell, f"{action} at step {int(steps[column]):,}: {value:.2f}")
    axes.set_yticks(range(len(probes.actions)), [charts.plain(action) for action in probes.actions])
    ends = [0, len(values) - 1]
    axes.set_xticks(ends, [charts.short(float(steps[end])) for end in ends])
    axes.margins(0)
    axes.invert_yaxis()
    return charts.inline(figure, f"probability of each action in: {probes.names[index]}")


def read_published(folder: str | os.PathLike[str]) -> Probes | None:
    """Reads `distrib.csv` of a published run, whose folder name lists the actions; None without
    it.
    """
    path = Path(folder) / results.DISTRIBUTIONS
    if not path.is_file():
        return None
    actions = results.actions_of(Path(folder).name)
    scores = results.read_distributions(path, len(actions))
    probabilities = results.probabilities(scores)
    updates, probes, _ = probabilities.shape
    names = tuple(f"situation {number}" for number in range(1, probes + 1))
    log = metric_files.read_csv(Path(folder) / results.LOG)
    # A row is written before its update; the update's row in the log counts the frames after it.
    frames = np.concatenate([[0.0], log.get("frames", np.arange(1.0, updates + 1))])
    steps = frames[:updates] if len(frames) >= updates else np.arange(updates)
    return Probes(actions, names, ("",) * probes, steps.astype(np.int64), probabilities, ())


def section(probes: Probes | None) -> Section | None:
    """The section; None without probes."""
    if probes is None:
        return None
    figures = []
    for index, (name, prompt) in enumerate(zip(probes.names, probes.prompts, strict=True)):
        newest = probes.probabilities[-1, index]
        likeliest = int(newest.argmax())
        # The first line of a prompt lists the actions, and the last asks for one.
        situation = " ".join(line.strip() for line in prompt.split("\n")[1:-1])
        caption = f"at the end {probes.actions[likeliest]} with {100 * newest[likeliest]:.0f} %. {situation}"
        figures.append(html.figure(name, heatmap(probes, index), caption))
    rows = []
    for clause in probes.clauses:
        effect = TableCell(f"{clause.action} {clause.difference:+.3f}", clause.difference)
        rows.append((clause.probe, clause.text, number_cell(clause.change, ".3f"), effect))
    header = ("situation", "clause", "change of the policy", "largest change of one action")
    tables = [Table("clause-table", header, rows, "effect of each clause")] if rows else []
    note = (
        "What the agent would do in fixed situations. One row per action, one column per update; a stronger colour is a higher probability. Change of the policy: total "
        "variation distance, 0 to 1, between what it does with the clause and without it, at the last probe."
    )
    return Section("Probes", "probes", [html.grid(*figures), *tables], note)
