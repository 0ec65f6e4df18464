"""Reads dialogues from a file or a folder, in any of the known formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core import bounded_parquet
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import json_lines, parquet
from motif_jax.ilql.dialogues.dialogue import Dialogues

NAME = "dialogues.parquet"
SUFFIXES = (".parquet", ".jsonl", ".json")


def find(value: str, key: str) -> Path:
    """The file of the config's `key`; for a folder its dialogues.parquet, or its only file of dialogues, else UserError."""
    path, where = Path(value), f"config.{key}={value}"
    if path.is_dir() and (path / NAME).is_file():
        return path / NAME
    if path.is_dir():
        there = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES[:2] and each.is_file())
        if len(there) > 1:
            raise UserError(f"{where}: has {len(there)} files of dialogues, name one: {there[0].name}, ...")
        path = there[0] if there else path
    if not path.is_file() or path.suffix not in SUFFIXES:
        raise UserError(
            f"{where}: must be a file of dialogues (.jsonl, .parquet), or a folder with one, such as collect_text makes"
        )
    return path


def read(path: Path) -> Dialogues:
    """Reads all dialogues of a file: our parquet, parquet with a column `messages`, or JSON lines; UserError without any."""
    try:
        names = pq.read_schema(path).names if path.suffix == ".parquet" else None
        if names is not None and ("texts" in names or "messages" not in names):
            return parquet.read(path)
        parts = list(json_lines.read(path) if names is None else _rows(path, names))
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read as parquet: {error}") from None
    if not parts:
        raise UserError(f"{path} holds no dialogues")
    return Dialogues.joined(parts)


def _rows(path: Path, names: list[str]) -> Iterator[Dialogues]:
    first = 0
    for batch in bounded_parquet.batches(path, names):
        # Values without a JSON form, such as a time, become text.
        rows = json.loads(json.dumps(batch.to_pylist(), default=str))
        yield Dialogues.of(json_lines.parsed(row, f"{path}: row {n}") for n, row in enumerate(rows, first))
        first += len(rows)
