"""Reads and writes dialogues as one parquet file.

A row per dialogue: `texts` (list of string), `rewards` (list of double, null for the environment's
utterances), `terminal` (bool), `meta` (string, a JSON object).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, replaced_file
from motif_jax.ilql.dialogues.dialogue import LARGEST_REWARD, Dialogues

FORMAT, VERSION = b"motif_jax.dialogues", 1
SCHEMA = pa.schema(
    [
        ("texts", pa.list_(pa.string())),
        ("rewards", pa.list_(pa.float64())),
        ("terminal", pa.bool_()),
        ("meta", pa.string()),
    ]
)


def _table(dialogues: Dialogues, schema: pa.Schema) -> pa.Table:
    # Lists of Arrow have int32 offsets.
    offsets = pa.array((dialogues.starts - dialogues.starts[0]).astype(np.int32))
    rewards = pa.array(dialogues.rewards, mask=~dialogues.actions)
    return pa.Table.from_arrays(
        [
            pa.ListArray.from_arrays(offsets, pa.array(dialogues.texts, pa.string())),
            pa.ListArray.from_arrays(offsets, rewards),
            pa.array(dialogues.terminals),
            pa.array(dialogues.metas, pa.string()),
        ],
        schema=schema,
    )


def write(path: str | Path, parts: Iterable[Dialogues], about: Mapping[str, Any]) -> None:
    """Writes `parts` to one file atomically, a row group per part, and `about`, their origin as
    JSON, in its metadata.
    """
    metadata = {
        FORMAT: str(VERSION).encode(),
        b"about": json.dumps(dict(about), sort_keys=True).encode(),
    }
    schema = SCHEMA.with_metadata(metadata)
    with (
        replaced_file(Path(path)) as file,
        pq.ParquetWriter(file.absolute(), schema, compression="zstd") as writer,
    ):
        for part in parts:
            writer.write_table(_table(part, schema))


def read(path: str | Path) -> Dialogues:
    """Reads a file with the columns of `write`, from any writer; UserError for other files or
    inconsistent rows.
    """
    try:
        columns = pq.read_schema(Path(path).absolute()).names
        missing = [name for name in SCHEMA.names if name not in columns]
        if missing:
            raise UserError(
                f"{path} has no column {', '.join(missing)}: a file of dialogues has {', '.join(SCHEMA.names)}"
            )
        with pq.ParquetFile(Path(path).absolute()) as file:
            table = file.read(SCHEMA.names).select(SCHEMA.names)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read as parquet: {error}") from None
    try:
        # Other writers have large strings, or numbers of other widths.
        table = table.cast(SCHEMA)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(
            f"{path}: a column has another type than in files of dialogues ({error})"
        ) from None
    nulls = [name for name in SCHEMA.names if table.column(name).null_count]
    if nulls:
        raise UserError(f"{path}: values of {', '.join(nulls)} are missing")
    texts = table.column("texts").combine_chunks()
    rewards = table.column("rewards").combine_chunks()
    starts = np.asarray(texts.offsets, np.int64)
    if not np.array_equal(np.diff(starts), np.diff(rewards.offsets)):
        raise UserError(f"{path}: each dialogue must have as many rewards as texts")
    # Without what stands before the first offset, hence `starts - starts[0]` below.
    flat_texts = texts.flatten()
    flat_rewards = rewards.flatten()
    if flat_texts.null_count:
        raise UserError(f"{path}: {flat_texts.null_count} texts are missing")
    values = flat_rewards.to_numpy(zero_copy_only=False)
    actions = np.asarray(flat_rewards.is_valid())
    # NaN is not below the limit, either.
    if not (np.abs(values[actions]) <= LARGEST_REWARD).all():
        raise UserError(
            f"{path}: a reward is not a number from {-LARGEST_REWARD:g} to {LARGEST_REWARD:g}"
        )
    metas = table.column("meta").to_pylist()
    # Each text once: many files have `{}` in all rows.
    for meta in dict.fromkeys(metas):
        try:
            parse_json(meta, dict)
        except ValueError as error:
            raise UserError(
                f"{path}: meta of row {metas.index(meta)} must be a JSON object, such as {{}} ({error})"
            ) from None
    return Dialogues(
        starts=starts - starts[0],
        texts=np.array(flat_texts.to_pylist(), object),
        rewards=np.where(actions, values, 0.0),
        actions=actions,
        terminals=np.asarray(table.column("terminal").combine_chunks(), bool),
        metas=np.array(metas, object),
    )


def about(path: str | Path) -> dict[str, Any]:
    """The `about` of `write`; {} for files of other writers."""
    try:
        metadata = pq.read_schema(Path(path).absolute()).metadata or {}
        return parse_json(metadata.get(b"about", b"{}"), dict)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read as parquet: {error}") from None
    except ValueError as error:
        raise UserError(f"{path}: its metadata about its origin cannot be read ({error})") from None
