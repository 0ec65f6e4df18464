"""The section of a run's page with games of the training that left a recording."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from motif_jax.reports import html
from motif_jax.reports.html import TableCell
from motif_jax.reports.measures import format_value, measure, with_unit
from motif_jax.reports.page import Section, Table
from motif_jax.reports.run_data import RunData
from motif_jax.support import curves

NAME = re.compile(r"step-(\d+)-env-(\d+)-episode-(\d+)")
_SHOWN = ("return", "length", "score", "dlvl")


def read_recorded(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Returns the rows of episodes.jsonl in an agent's run folder that have a recording, with its `stem`."""
    stems = {}
    for path in sorted((Path(folder) / "recordings").glob("step-*.json")):
        if found := NAME.fullmatch(path.stem):
            stems[int(found.group(2)), int(found.group(3))] = path.stem
    if not stems:
        return []
    keyed = (((row.get("env"), row.get("episode")), row) for row in curves.episode_rows(folder))
    return [{**row, "stem": stems[key]} for key, row in keyed if key in stems]


def players(folders: Iterable[Path], workdir: Path) -> dict[str, str]:
    """Returns links, relative to `workdir`, to the players that `replay` has made of such games, by stem."""
    return {
        path.stem: Path(os.path.relpath(path.resolve(), workdir.resolve())).as_posix()
        for folder in folders
        for path in sorted(folder.glob("step-*.html"))
    }


def section(data: RunData, count: int = 5) -> Section | None:
    """Best and worst recorded games of the training; None without any."""
    if not data.recorded:
        return None
    rated = all(row.get("intrinsic_return") is not None for row in data.recorded)
    key = "intrinsic_return" if rated else "return"
    ranked = sorted(data.recorded, key=lambda row: -row[key])
    chosen = ranked if len(ranked) <= 2 * count else [*ranked[:count], *ranked[-count:]]
    shown = [name for name in _SHOWN if name != key and name in chosen[0]]
    rows = []
    for row in chosen:
        link = data.recorded_players.get(row["stem"])
        watch = html.Markup(html.link(link, "watch")) if link else TableCell(f"{row['stem']}.json")
        numbers = [TableCell(format_value(row[name]), row[name]) for name in (key, *shown)]
        rows.append((TableCell(f"{row['step']:,}", row["step"]), *numbers, watch))
    header = ("environment steps", *(with_unit(measure(name)) for name in (key, *shown)), "replay")
    return Section(
        "Sampled games of the training",
        "training-games",
        [Table("training-games-table", header, rows)],
        note=f"{len(data.recorded):,} games were recorded; these are the best and the worst by {measure(key).title}. "
        "The replay stage makes players of them: config.recordings=AGENT_RUN/recordings.",
    )
