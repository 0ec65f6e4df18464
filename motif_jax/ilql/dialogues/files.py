"""Reads dialogues from a file or a folder, in any of the known formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues import json_lines, parquet
from motif_jax.ilql.dialogues.dialogue import Dialogues

NAME = "dialogues.parquet"
SUFFIXES = (".parquet", ".jsonl", ".json")
# Rows of a parquet file that are read at once.
_ROWS = 1024


def find(value: str, key: str) -> Path:
    """The file of the config's `key`; for a folder its dialogues.parquet, or its only file of
    dialogues, else UserError.
    """
    path = Path(value)
    if path.is_dir() and (path / NAME).is_file():
        return path / NAME
    if path.is_dir():
        # A folder's .json may be anything.
        files = sorted(
            file for file in path.iterdir() if file.suffix in SUFFIXES[:2] and file.is_file()
        )
        if len(files) > 1:
            raise UserError(
                f"config.{key}={value}: has {len(files)} files of dialogues, name one: {files[0].name}, ..."
            )
        if files:
            path = files[0]
    if not path.is_file() or path.suffix not in SUFFIXES:
        raise UserError(
            f"config.{key}={value}: must be a file of dialogues (.jsonl, .parquet), or a folder with one, such as collect_text makes"
        )
    return path


def read(path: Path) -> Dialogues:
    """Reads all dialogues of a file: our parquet, parquet with a column `messages`, or JSON lines;
    UserError without any.
    """
    try:
        if path.suffix == ".parquet":
            columns = pq.read_schema(Path(path).absolute()).names
            # With neither column, `parquet.read` says which ones are missing.
            if "texts" in columns or "messages" not in columns:
                return parquet.read(path)
            parts = list(_read_messages(path, columns))
        else:
            parts = list(json_lines.read(path))
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read as parquet: {error}") from None
    if not parts:
        raise UserError(f"{path} holds no dialogues")
    return Dialogues.joined(parts)


def _read_messages(path: Path, columns: list[str]) -> Iterator[Dialogues]:
    """The dialogues of a parquet file whose rows are objects of `json_lines`."""
    first = 0
    with pq.ParquetFile(path.absolute()) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            # Values without a JSON form, such as a time, become text.
            rows = json.loads(json.dumps(batch.to_pylist(), default=str))
            yield Dialogues.of(
                json_lines.parsed(row, f"{path}: row {n}") for n, row in enumerate(rows, first)
            )
            first += len(rows)
