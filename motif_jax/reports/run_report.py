"""The report of one run: a page, tables and charts as files, and numbers as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from motif_jax.core.files import finite
from motif_jax.core.run_folder import read_description
from motif_jax.display import html
from motif_jax.display.page import Section, Table
from motif_jax.reports import (
    generalisation_section,
    hacking,
    learned_reward,
    probes,
    recorded_games,
    success,
    text_section,
    training_sections,
)
from motif_jax.reports.evaluation_sections import evaluation_section, rows_of
from motif_jax.reports.glance import facts, headline
from motif_jax.reports.run_data import RunData


def sections(data: RunData) -> list[Section]:
    """The sections of the page, in order."""
    # Parts of other kinds of runs are then not named as missing.
    text = text_section.headline(data) is not None or bool(data.text and not data.metrics)
    plain = success.task_alone(data)
    items = facts(data)
    table = Table("glance-table", ("what", "value", "note"), items, in_files=True, on_page=False)
    glance = [html.verdict(*headline(data)), *([html.tiles(items)] if items else []), table]
    found = [
        Section("At a glance", "glance", glance),
        evaluation_section(data),
        generalisation_section.by_kind(data),
        generalisation_section.section(data.tests),
        text_section.divergence_section(data),
        training_sections.dialogues_section(data.text),
        None if plain else training_sections.hacking_section(data),
        None if text else training_sections.training_section(data),
        probes.section(data.probes),
        learned_reward.section(data.learned, data.metrics),
        None if plain else training_sections.reward_section(data),
        training_sections.language_section(data.language),
        None if plain else training_sections.messages_section(data),
        recorded_games.episodes_section(data),
        recorded_games.section(data),
        None if plain else training_sections.data_section(data),
        training_sections.provenance_section(data),
    ]
    return [section for section in found if section is not None]


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
    files = {file: read_description(Path(folder) / file) for file in ("config.json", "versions.json")}
    return [(f"{name}: {file}", json.dumps(there, indent=2)) for file, there in files.items() if there]


def as_json(data: RunData) -> dict[str, Any]:
    """The report as plain data with unrounded numbers; None for missing values."""
    text, kind = headline(data)
    rows, evaluations = rows_of(data), {}
    for name, evaluation in data.evaluations.items():
        kept = {key: evaluation[key] for key in ("plan", "episodes", "steps", "confidence", "intervals")}
        measures = {row.what.key: asdict(row.of[name]) for row in rows if name in row.of}
        evaluations[name] = {**kept, "measures": measures}
    first = next(iter(data.evaluations), "")
    differences = [
        {"first": first, "other": other, "measure": row.what.key, **asdict(gap), "better_episode": chance}
        for row in rows
        for other, (gap, chance) in row.against.items()
    ]
    progress = [{**of._asdict(), "changes": [c._asdict() for c in of.changes]} for of in _verdicts(data)]
    return finite(
        {
            "title": data.title,
            "headline": {"text": text, "kind": kind},
            "facts": [dict(zip(("what", "value", "note"), fact, strict=True)) for fact in facts(data)],
            "evaluations": evaluations,
            "differences": differences,
            "progress": progress,
            "dataset": data.dataset,
            "labels": data.labels,
        }
    )
