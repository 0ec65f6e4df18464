"""Sections of a run's page with games to watch: of the evaluation, and recorded ones of the
training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motif_jax.core import metric_files
from motif_jax.display import html
from motif_jax.display.html import TableCell
from motif_jax.display.measures import format_value, measure, with_unit
from motif_jax.display.page import Section, Table
from motif_jax.envs import recording
from motif_jax.reports.evaluation_sections import is_text
from motif_jax.reports.run_data import RunData

_SHOWN = ("return", "length", "score", "dlvl")


def read_recorded(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of episodes.jsonl whose episodes are recorded, each with its recording's `stem`."""
    stems = {}
    for path in sorted((Path(folder) / recording.FOLDER).glob("step-*.json")):
        match = recording.STEM.fullmatch(path.stem)
        if match is not None:
            # By environment and episode, which the rows of the training have, too.
            stems[int(match[2]), int(match[3])] = path.stem
    if not stems:
        return []
    recorded = []
    for row in metric_files.episode_rows(folder):
        key = (row.get("env"), row.get("episode"))
        if key in stems:
            recorded.append({**row, "stem": stems[key]})
    return recorded


def players(folders: Iterable[Path], workdir: Path) -> dict[str, str]:
    """Stem -> link, relative to `workdir`, to the player that `visualize` wrote for the game."""
    paths = (path for folder in folders for path in sorted(folder.glob("step-*.html")))
    return {path.stem: link(path, workdir) for path in paths}


def link(path: Path, workdir: Path) -> str:
    """`path` as a link from a page in `workdir`."""
    return Path(os.path.relpath(path.resolve(), workdir.resolve())).as_posix()


def _table(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    key: str,
    first_columns: Mapping[str, Callable[[Mapping[str, Any]], Any]],
    replay_cell: Callable[[Mapping[str, Any]], TableCell | str],
    count: int = 3,
) -> Table:
    """The `count` best and the `count` worst of `rows` by the measure `key`.

    `first_columns`: title -> the cell of a row; `replay_cell`: the last cell of a row.
    """
    # JSON holds no infinite numbers: they are null.
    ranked = sorted((row for row in rows if row.get(key) is not None), key=lambda row: -row[key])
    chosen = ranked if len(ranked) <= 2 * count else [*ranked[:count], *ranked[-count:]]
    measures = [key]
    for measure_key in _SHOWN:
        if measure_key != key and any(measure_key in row for row in chosen):
            measures.append(measure_key)
    header = [
        *first_columns,
        *(with_unit(measure(measure_key)) for measure_key in measures),
        "replay",
    ]
    cells = []
    for row in chosen:
        line = [cell(row) for cell in first_columns.values()]
        line += [_number_cell(row.get(measure_key)) for measure_key in measures]
        line.append(replay_cell(row))
        cells.append(line)
    return Table(name, header, cells)


def _number_cell(number: float | None) -> TableCell:
    return TableCell("n/a") if number is None else TableCell(format_value(number), number)


def episodes_section(data: RunData) -> Section | None:
    """The best and the worst evaluated episodes, with seeds and replays; None without episodes."""
    if not data.evaluations:
        return None
    name, evaluation = next(iter(data.evaluations.items()))
    key = "intrinsic_return" if "intrinsic_return" in evaluation["measures"] else "return"
    links = dict(data.replays)

    def replay_cell(row: Mapping[str, Any]) -> TableCell | str:
        # Games of text have one page for all.
        link_of_row = links.get(str(row["index"]), data.games_page if "tokens" in row else None)
        return TableCell("watch", link=link_of_row) if link_of_row else "not recorded"

    first_columns = {
        "episode": lambda row: html.number_cell(row["index"], ""),
        "seed": lambda row: row["seed"],
        "ended by": lambda row: row["end_reason"],
    }
    table = _table("episode-table", evaluation["rows"], key, first_columns, replay_cell)
    note = f"Evaluation {name}, ordered by {measure(key).title}"
    if not is_text(evaluation):
        note += "; every episode can be replayed from its seed and actions"
    return Section("Best and worst episodes", "episodes", [table], f"{note}.")


def section(data: RunData) -> Section | None:
    """The best and the worst recorded games of the training; None without recordings."""
    if not data.recorded:
        return None
    are_rated = all(row.get("intrinsic_return") is not None for row in data.recorded)
    key = "intrinsic_return" if are_rated else "return"

    def replay_cell(row: Mapping[str, Any]) -> TableCell | str:
        link_of_row = data.recorded_players.get(row["stem"])
        return TableCell("watch", link=link_of_row) if link_of_row else f"{row['stem']}.json"

    first_columns = {"environment steps": lambda row: html.number_cell(row["step"], ",")}
    table = _table("training-games-table", data.recorded, key, first_columns, replay_cell)
    note = (
        f"{len(data.recorded):,} games were recorded; these are the best and the worst by {measure(key).title}. "
        "The stage visualize makes players of them: config.recorded.files=AGENT_RUN/recordings."
    )
    return Section("Sampled games of the training", "training-games", [table], note)
