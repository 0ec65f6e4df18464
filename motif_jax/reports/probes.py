"""A language agent's action probabilities in fixed prompts over its training, and the effect of each clause."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import metric_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json, read_json_lines
from motif_jax.display import charts, html
from motif_jax.display.html import TableCell, number_cell
from motif_jax.display.page import Section, Table
from motif_jax.published import glam_probes

DESCRIPTION, LINES, CLAUSES = "probes.json", "probes.jsonl", "clauses.jsonl"
_REMEDY = "remove the file, then probe_language_agent makes it from the run's checkpoints"
_COLUMNS = 60  # most columns of a heatmap; more updates are thinned out


class Clause(NamedTuple):
    """A clause of a probe's prompt: the total variation distance between the policy with and without it, and what it raises most."""

    probe: str
    text: str
    change: float
    action: str
    difference: float


class Probes(NamedTuple):
    """The contents of a run's probe files.

    `steps` int64 [updates] are environment steps before each update, `probabilities` float64 [updates, probes, actions];
    `clauses` are those at the newest update, by descending `change`.
    """

    actions: tuple[str, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    steps: np.ndarray
    probabilities: np.ndarray
    clauses: tuple[Clause, ...]


def read(folder: str | os.PathLike[str]) -> Probes | None:
    """Reads the probes of train_agent or probe_language_agent; None without them. Raises UserError: a file is damaged."""
    path = Path(folder) / DESCRIPTION
    if not path.exists():
        return None
    written = read_json(path, _REMEDY, keys=("actions", "probes"))
    rows = list(read_json_lines(Path(folder) / LINES, ("update", "step"), _REMEDY))
    if not rows:
        return None
    try:
        probes, actions = written["probes"], tuple(written["actions"])
        found = np.array([row["probabilities"] for row in rows], np.float64)
        if found.shape[1:] != (len(probes), len(actions)):
            raise ValueError("probabilities of other probes or actions")
        looks = list(read_json_lines(Path(folder) / CLAUSES, ("update",), _REMEDY))
        updates = {row["update"]: number for number, row in enumerate(rows)}
        clauses: list[Clause] = []
        if looks and looks[-1]["update"] in updates:
            whole = found[updates[looks[-1]["update"]]]
            clauses = [_clause(each, probes, actions, whole) for each in looks[-1]["without"]]
        names, prompts = (tuple(probe[key] for probe in probes) for key in ("name", "prompt"))
        steps = np.array([row["step"] for row in rows], np.int64)
        clauses.sort(key=lambda clause: -clause.change)
        return Probes(actions, names, prompts, steps, found, tuple(clauses))
    except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path} or {LINES} beside it is damaged ({error}): {_REMEDY}") from None


def _clause(each: dict[str, Any], probes: Sequence[Any], actions: Sequence[str], whole: np.ndarray) -> Clause:
    probe = probes[each["probe"]]
    difference = whole[each["probe"]] - np.array(each["probabilities"], np.float64)
    most = int(np.argmax(np.abs(difference)))
    text, change = probe["observations"][each["observation"]][each["clause"]], np.abs(difference).sum() / 2
    return Clause(probe["name"], text, float(change), actions[most], float(difference[most]))


def heatmap(probes: Probes, place: int) -> str:
    """One probe as SVG: a row per action, a column per update; a stronger colour is a higher probability."""
    values, steps = probes.probabilities[:, place], probes.steps
    if len(values) > _COLUMNS:
        chosen = np.linspace(0, len(values) - 1, _COLUMNS).round().astype(int)
        values, steps = values[chosen], steps[chosen]
    figure, axes = charts.new_figure("environment steps", "", 0.6 + 0.2 * len(probes.actions))
    axes.grid(False)
    for row, action in enumerate(probes.actions):
        for column, value in enumerate(values[:, row].tolist()):
            alpha = min(1.0, max(0.0, value))
            (cell,) = axes.barh(row, 1.01, 0.92, column, color=charts.COLOURS[0], alpha=alpha)
            charts.set_title(cell, f"{action} at step {int(steps[column]):,}: {value:.2f}")
    axes.set_yticks(range(len(probes.actions)), [charts.plain(action) for action in probes.actions])
    ends = [0, len(values) - 1]
    axes.set_xticks(ends, [charts.short(float(steps[end])) for end in ends])
    axes.margins(0)
    axes.invert_yaxis()
    return charts.inline(figure, f"probability of each action in: {probes.names[place]}")


def read_published(folder: str | os.PathLike[str]) -> Probes | None:
    """Reads `distrib.csv` of a published run, whose folder's name tells the actions; None without it. Raises UserError."""
    path = Path(folder) / glam_probes.FILE
    if not path.is_file():
        return None
    actions = glam_probes.actions_of(Path(folder).name)
    found = glam_probes.probabilities(glam_probes.read_distributions(path, len(actions)))
    names = tuple(f"situation {number}" for number in range(1, found.shape[1] + 1))
    log = metric_files.read_csv(Path(folder) / "log.csv")
    # A row is written before its update; the update's row in the log counts the frames after it.
    frames = np.concatenate([[0.0], log.get("frames", np.arange(1.0, len(found) + 1))])
    steps = frames[: len(found)] if len(frames) >= len(found) else np.arange(len(found))
    return Probes(actions, names, ("",) * len(names), steps.astype(np.int64), found, ())


def section(probes: Probes | None) -> Section | None:
    """The section; None without probes."""
    if probes is None:
        return None
    figures = []
    for place, (name, prompt) in enumerate(zip(probes.names, probes.prompts, strict=True)):
        likely = int(probes.probabilities[-1, place].argmax())
        chance = probes.probabilities[-1, place, likely]
        goal = " ".join(line.strip() for line in prompt.split("\n")[1:-1])
        caption = f"at the end {probes.actions[likely]} with {100 * chance:.0f} %. {goal}"
        figures.append(html.figure(name, heatmap(probes, place), caption))
    rows = []
    for clause in probes.clauses:
        most = TableCell(f"{clause.action} {clause.difference:+.3f}", clause.difference)
        rows.append((clause.probe, clause.text, number_cell(clause.change, ".3f"), most))
    header = ("situation", "clause", "change of the policy", "what the clause does most")
    table = [Table("clause-table", header, rows, "what each clause is worth")] if rows else []
    note = (
        "What the agent would do in fixed situations: a row an action, a column an update, the stronger the colour the likelier. Change of the policy: total "
        "variation distance, 0 to 1, between what it does with the clause and without it, at the newest look."
    )
    return Section("Probes", "probes", [html.grid(*figures), *table], note)
