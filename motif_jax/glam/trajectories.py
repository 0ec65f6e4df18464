"""Trajectories as one parquet file: a row per step, the origin in the metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, replaced_file

FILE = "trajectories.parquet"
META = "trajectories.json"
# The key of the file's metadata.
_ABOUT = b"motif_jax.trajectories"
_ABOUT_KEYS = ("environment", "options", "actions")
ROW_GROUP_STEPS = 4096


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
    """The metadata of a file of `write`; UserError for any other file."""
    try:
        description = parse_json((pq.read_schema(Path(path).absolute()).metadata or {})[_ABOUT])
        if not all(key in description for key in _ABOUT_KEYS):
            raise ValueError(f"its metadata lack one of {', '.join(_ABOUT_KEYS)}")
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: give a folder that collect_trajectories has written"
        ) from None
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} holds no trajectories ({error}): give a folder that collect_trajectories has written"
        ) from None
    return description


def read(path: str | os.PathLike[str]) -> Pairs:
    """Reads a file of `write`; UserError for any other file, or for an action that is not in its
    list.
    """
    # A file of another origin is refused before its columns are read.
    description = about(path)
    try:
        # pyarrow reads a relative path with a colon as an address.
        with pq.ParquetFile(Path(path).absolute()) as file:
            table = file.read(["prompt", "action"])
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged ({error}): collect it again") from None
    prompts = table["prompt"].to_pylist()
    actions = table["action"].to_pylist()
    names = description["actions"]
    if None in prompts or any(action is None or action >= len(names) for action in actions):
        raise UserError(
            f"{path} is damaged (an action that is not one of {len(names)}): collect it again"
        )
    return Pairs(prompts, actions)
