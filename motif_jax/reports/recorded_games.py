"""Sections of a run's page with games to watch: of the evaluation, and recorded ones of the training."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import metric_files
from motif_jax.display import html
from motif_jax.display.html import TableCell
from motif_jax.display.measures import format_value, measure, with_unit
from motif_jax.display.page import Section, Table
from motif_jax.reports.run_data import RunData

NAME = re.compile(r"step-(\d+)-env-(\d+)-episode-(\d+)")
_SHOWN = ("return", "length", "score", "dlvl")


def read_recorded(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of episodes.jsonl whose episodes are recorded, each with its recording's `stem`."""
    names = (NAME.fullmatch(path.stem) for path in sorted((Path(folder) / "recordings").glob("step-*.json")))
    stems = {(int(name[2]), int(name[3])): name[0] for name in names if name}
    if not stems:
        return []
    keyed = (((row.get("env"), row.get("episode")), row) for row in metric_files.episode_rows(folder))
    return [{**row, "stem": stems[key]} for key, row in keyed if key in stems]


def players(folders: Iterable[Path], workdir: Path) -> dict[str, str]:
    """Stem -> link, relative to `workdir`, to the player that `replay` wrote for the game."""
    paths = (path for folder in folders for path in sorted(folder.glob("step-*.html")))
    return {path.stem: link(path, workdir) for path in paths}


def link(path: Path, workdir: Path) -> str:
    """`path` as a link from a page in `workdir`."""
    return Path(os.path.relpath(path.resolve(), workdir.resolve())).as_posix()


def _table(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    lead: Mapping[str, Callable[[Mapping[str, Any]], Any]],
    watch: Callable[[Mapping[str, Any]], tuple[str | None, str]],
    count: int = 3,
) -> Table:
    ranked = sorted(rows, key=lambda row: -row[key])
    chosen = ranked if len(ranked) <= 2 * count else [*ranked[:count], *ranked[-count:]]
    shown = [key, *(name for name in _SHOWN if name != key and name in chosen[0])]
    header = (*lead, *(with_unit(measure(name)) for name in shown), "replay")
    cells = []
    for row in chosen:
        path, otherwise = watch(row)
        replay = TableCell("watch", link=path) if path else otherwise
        numbers = (TableCell(format_value(row[name]), row[name]) for name in shown)
        cells.append((*(cell(row) for cell in lead.values()), *numbers, replay))
    return Table(name, header, cells)


def episodes_section(data: RunData) -> Section | None:
    """The best and the worst evaluated episodes, with seeds and replays; None without episodes."""
    if not data.evaluations:
        return None
    name, evaluation = next(iter(data.evaluations.items()))
    key = "intrinsic_return" if "intrinsic_return" in evaluation["measures"] else "return"
    links = dict(data.replays)

    def watch(row: Mapping[str, Any]) -> tuple[str | None, str]:
        return links.get(str(row["index"]), data.games_page if "tokens" in row else None), "not recorded"

    lead = {
        "episode": lambda row: html.number_cell(row["index"], ""),
        "seed": lambda row: row["seed"],
        "ended by": lambda row: row["end_reason"],
    }
    table = _table("episode-table", evaluation["rows"], key, lead, watch)
    note = f"Evaluation {name}, ordered by {measure(key).title}; every episode can be replayed from its seed and actions."
    return Section("Best and worst episodes", "episodes", [table], note)


def section(data: RunData) -> Section | None:
    """The best and the worst recorded games of the training; None without recordings."""
    if not data.recorded:
        return None
    rated = all(row.get("intrinsic_return") is not None for row in data.recorded)
    key = "intrinsic_return" if rated else "return"

    def watch(row: Mapping[str, Any]) -> tuple[str | None, str]:
        return data.recorded_players.get(row["stem"]), f"{row['stem']}.json"

    lead = {"environment steps": lambda row: html.number_cell(row["step"], ",")}
    table = _table("training-games-table", data.recorded, key, lead, watch)
    note = (
        f"{len(data.recorded):,} games were recorded; these are the best and the worst by {measure(key).title}. "
        "The replay stage makes players of them: config.recordings=AGENT_RUN/recordings."
    )
    return Section("Sampled games of the training", "training-games", [table], note)
