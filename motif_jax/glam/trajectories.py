"""Trajectories of BabyAI-Text: as one parquet file, a row per step with the origin in the metadata;
and as the published tool's `.npy` arrays of prompts and actions, without unpickling.

Source of the arrays: github.com/flowersteam/Grounding_LLMs_with_online_RL (MIT), as facts. File k
has the contents of the files before it too. Files of LLM agents begin with empty objects and are
rejected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, load_array, new_array, parse_json, replaced_file

FILE = "trajectories.parquet"
META = "trajectories.json"
# The key of the file's metadata.
_ABOUT = b"motif_jax.trajectories"
ROW_GROUP_STEPS = 4096
# Names of published files by an agent and by the bot.
NAME = "trajectories"
BOT_NAME = "bot_trajectories"
STATUS = "status.json"


class TrajectoryEpisode(NamedTuple):
    """One episode; `number` is its index in the list of seeds."""

    number: int
    seed: int
    prompts: list[str]
    actions: list[int]  # indices into the list of actions
    rewards: list[float]  # of the task, unscaled


class Pairs(NamedTuple):
    """Prompts and actions of all steps, for cloning."""

    prompts: list[str]
    actions: list[int]  # indices into `about(...)["actions"]`


def write(
    path: str | os.PathLike[str], episodes: Iterable[TrajectoryEpisode], about: Mapping[str, Any]
) -> int:
    """Writes episodes atomically; `about` is JSON. Returns the number of steps."""
    columns = [
        ("episode", "int32"),
        ("seed", "int64"),
        ("step", "int32"),
        ("prompt", "string"),
        ("action", "uint8"),
        ("reward", "float32"),
    ]
    # The origin is in the file itself, which may be copied without its folder.
    schema = pa.schema(columns, {_ABOUT: json.dumps(about).encode()})
    steps = 0
    waiting: list[dict[str, Any]] = []
    with (
        replaced_file(Path(path)) as part,
        pq.ParquetWriter(part.absolute(), schema, compression="zstd") as writer,
    ):
        for episode in episodes:
            rows = zip(episode.prompts, episode.actions, episode.rewards, strict=True)
            for step, row in enumerate(rows):
                values = (episode.number, episode.seed, step, *row)
                waiting.append(dict(zip(schema.names, values, strict=True)))
            # Whole episodes, so that a group may be somewhat larger.
            if len(waiting) >= ROW_GROUP_STEPS:
                writer.write_table(pa.Table.from_pylist(waiting, schema))
                steps += len(waiting)
                waiting = []
        # Without any step the file has one empty group.
        if waiting or not steps:
            writer.write_table(pa.Table.from_pylist(waiting, schema))
            steps += len(waiting)
    return steps


def about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The metadata of a file of `write`."""
    metadata = pq.read_schema(Path(path).absolute()).metadata
    description: dict[str, Any] = parse_json(metadata[_ABOUT])
    return description


def read(path: str | os.PathLike[str]) -> Pairs:
    """Reads a file of `write`."""
    # pyarrow reads a relative path with a colon as an address.
    with pq.ParquetFile(Path(path).absolute()) as file:
        table = file.read(["prompt", "action"])
    return Pairs(table["prompt"].to_pylist(), table["action"].to_pylist())


def published_paths(folder: str | os.PathLike[str], name: str, number: int) -> tuple[Path, Path]:
    """The published files of prompts and of actions."""
    prompts = Path(folder) / f"{name}_prompts_{number}.npy"
    actions = Path(folder) / f"{name}_actions_{number}.npy"
    return prompts, actions


def read_published(folder: str | os.PathLike[str], name: str, number: int) -> Pairs:
    """Prompts, and the actions on them, flattened row by row. Raises UserError: they differ in
    number.
    """
    prompts_path, actions_path = published_paths(folder, name, number)
    texts = load_array(prompts_path)
    numbers = load_array(actions_path)
    if texts.size != numbers.size:
        raise UserError(
            f"{prompts_path} has {texts.size} prompts, {actions_path} {numbers.size} actions: one for each is needed"
        )
    # Bytes name no encoding: they are read as UTF-8, and other bytes are replaced.
    if texts.dtype.kind == "S":
        texts = np.strings.decode(texts, "utf-8", "replace")
    return Pairs(texts.ravel().tolist(), numbers.ravel().tolist())


def write_published(
    folder: str | os.PathLike[str],
    name: str,
    pairs: Iterable[tuple[str, int]],
    steps: int,
    longest: int,
) -> None:
    """Writes file 1 of prompts (texts of at most `longest` characters) and actions of `steps`
    steps, and status.json.
    """
    prompts_path, actions_path = published_paths(folder, name, 1)
    unfinished_prompts = prompts_path.with_name(f".{prompts_path.name}.tmp")
    unfinished_actions = actions_path.with_name(f".{actions_path.name}.tmp")
    # Mapped files: all prompts at once need not fit into memory.
    texts = new_array(unfinished_prompts, f"<U{max(1, longest)}", (steps,))
    numbers = new_array(unfinished_actions, np.int64, (steps,))
    for index, (prompt, action) in enumerate(pairs):
        texts[index] = prompt
        numbers[index] = action
    texts.flush()
    numbers.flush()
    # status.json comes last: the stage writes all files again where it is missing.
    os.replace(unfinished_prompts, prompts_path)
    os.replace(unfinished_actions, actions_path)
    atomic_write_json(Path(folder) / STATUS, {"k": 1, "nbr_frames": steps})
