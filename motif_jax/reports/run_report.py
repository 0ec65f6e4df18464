"""The report of one run: a page, tables and charts as files, and numbers as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.core.files import finite
from motif_jax.core.run_folder import read_description
from motif_jax.display import html
from motif_jax.display.html import TableCell
from motif_jax.display.page import Fold, Section, Table
from motif_jax.reports import (
    generalisation_section,
    hacking,
    learned_reward,
    paid_section,
    probe_report,
    recorded_games,
    reward_sections,
    success,
    text_section,
    training_sections,
)
from motif_jax.reports.evaluation_sections import MeasureRow, evaluation_section, rows_of
from motif_jax.reports.glance import facts, headline
from motif_jax.reports.run_data import RunData


def sections(data: RunData) -> list[Section]:
    """The sections of the page, in order."""
    # Parts of other kinds of runs are then not named as missing.
    is_text = text_section.headline(data) is not None or bool(data.text and not data.metrics)
    is_task_alone = success.task_alone(data)
    items = facts(data)
    glance: list[Any] = [html.verdict(*headline(data))]
    if items:
        glance.append(html.tiles(items))
    # The tiles as a table in files.
    glance.append(
        Table("glance-table", ("what", "value", "note"), items, in_files=True, on_page=False)
    )
    page = [
        Section("At a glance", "glance", glance),
        evaluation_section(data),
        generalisation_section.by_kind(data),
        generalisation_section.section(data.tests),
        text_section.divergence_section(data),
        training_sections.dialogues_section(data.text),
        None if is_task_alone else reward_sections.hacking_section(data),
        None if is_text else training_sections.training_section(data),
        probe_report.section(data.probes),
        learned_reward.section(data.learned, data.metrics),
        None if is_task_alone else reward_sections.reward_section(data),
        training_sections.language_section(data.language),
        paid_section.paid_section(data.paid_rows, data.standstill),
        None if is_task_alone else reward_sections.messages_section(data),
        recorded_games.episodes_section(data),
        recorded_games.section(data),
        None if is_task_alone else reward_sections.data_section(data),
        provenance_section(data),
    ]
    return [section for section in page if section is not None]


def provenance_section(data: RunData) -> Section:
    """Configs, versions and commands."""
    parts: list[Any] = []
    if data.commands:
        rows = [(name, TableCell(command, code=True)) for name, command in data.commands]
        parts.append(Table("commands", ("run", "command"), rows))
    parts += [html.details(*text) for text in data.provenance]
    if not data.provenance:
        parts.append(html.nothing("no run folder was given"))
    return Section(
        "How it was made", "provenance", [Fold("commands, settings and versions", parts)]
    )


def lines(data: RunData) -> list[str]:
    """The verdicts in words."""
    return [headline(data)[0], *(verdict.line for verdict in _verdicts(data))]


def _verdicts(data: RunData) -> list[hacking.Verdict]:
    return [] if success.task_alone(data) else hacking.judge_run(data)


def command_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """[(name, command of the run)]; [] if it is unknown."""
    command = read_description(Path(folder) / "versions.json").get("command")
    return [(name, command)] if isinstance(command, str) else []


def provenance_of(folder: str | Path, name: str) -> list[tuple[str, str]]:
    """Config, versions and command of a run folder as (title, text); missing files are left out."""
    texts = []
    for file in ("config.json", "versions.json"):
        description = read_description(Path(folder) / file)
        if description:
            texts.append((f"{name}: {file}", json.dumps(description, indent=2)))
    return texts


def as_json(data: RunData) -> dict[str, Any]:
    """The report as plain data with unrounded numbers; None for missing values."""
    text, kind = headline(data)
    rows = rows_of(data)
    first = next(iter(data.evaluations), "")
    differences = []
    for row in rows:
        for other, (gap, chance) in row.against.items():
            names = {"first": first, "other": other, "measure": row.measure.key}
            differences.append({**names, **asdict(gap), "better_episode": chance})
    progress = []
    for verdict in _verdicts(data):
        changes = [change._asdict() for change in verdict.changes]
        progress.append({**verdict._asdict(), "changes": changes})
    return finite(
        {
            "title": data.title,
            "headline": {"text": text, "kind": kind},
            "facts": [
                dict(zip(("what", "value", "note"), fact, strict=True)) for fact in facts(data)
            ],
            "evaluations": _evaluations_as_json(data, rows),
            "differences": differences,
            "progress": progress,
            "dataset": data.dataset,
            "labels": data.labels,
        }
    )


def _evaluations_as_json(data: RunData, rows: list[MeasureRow]) -> dict[str, Any]:
    evaluations = {}
    for name, evaluation in data.evaluations.items():
        fields = {
            key: evaluation[key] for key in ("plan", "episodes", "steps", "confidence", "intervals")
        }
        measures = {
            row.measure.key: asdict(row.summaries[name]) for row in rows if name in row.summaries
        }
        evaluations[name] = {**fields, "measures": measures}
    return evaluations
