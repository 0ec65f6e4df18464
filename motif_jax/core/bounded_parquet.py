"""Reads parquet in pieces of bounded size: a file of 4 kB can describe 200 GB."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from motif_jax.core import capacity
from motif_jax.core.errors import UserError

# Greatest number of bytes of a piece, and of a row.
PIECE_BYTES = 1 << 28
ROW_BYTES = 1 << 30
# Bytes of an entry besides its text, and of a number whose kind is not in _WIDTHS.
_ENTRY = 8
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT_8": 1, "UINT_8": 1, "INT_16": 2, "UINT_16": 2}


def batches(
    path: str | os.PathLike[str], columns: Sequence[str], rows: int = 1024
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, at most `rows` and 256 MiB at once; a larger row comes alone.

    Raises UserError: a row has more than `ROW_BYTES`, or a group of rows takes more than the memory
    that is left; OSError, pa.ArrowException: it is not a parquet file, or damaged.
    """
    for group in _encoded(path, columns):
        for part in _parts(path, group):
            yield from (part[start : start + rows] for start in range(0, part.num_rows, rows))


def read(path: str | os.PathLike[str], columns: Sequence[str]) -> pa.Table:
    """The columns of a file; errors as of `batches`, and UserError where they take more than half
    of the memory that is left.
    """
    pieces: list[pa.RecordBatch] = []
    size = 0
    free = capacity.available_memory()
    for batch in _encoded(path, columns):
        size += _size(batch)
        # Twice, since all pieces are still there while the table is made of them.
        capacity.require(f"{path}: what it holds", 2 * size, free)
        pieces.append(batch)
    if pieces:
        table = pa.Table.from_batches(map(_plain, pieces))
    else:
        table = pq.read_schema(Path(path).absolute()).empty_table()
    return table.select(list(columns))


def _encoded(path: str | os.PathLike[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields groups of rows in which a repeated text is stored once."""
    # pyarrow reads a relative path with a colon as an address.
    file_path = Path(path).absolute()
    with pq.ParquetFile(file_path) as file:
        metadata = file.metadata
        leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    leaf_numbers = [
        number for number, leaf in enumerate(leaves) if leaf.path.split(".")[0] in columns
    ]
    # Before anything is read: a group's rows must fit at the size that they have decoded. A
    # repeated number takes next to nothing encoded.
    free = capacity.available_memory()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        parts = ((_width(leaves[leaf]), group.column(leaf)) for leaf in leaf_numbers)
        size = sum(
            max(part.total_uncompressed_size, width * part.num_values) for width, part in parts
        )
        capacity.require(f"{path}: group {number} of its rows", size, free)
    with pq.ParquetFile(file_path, read_dictionary=texts) as file:
        # Group by group: each batch holds all texts of its groups.
        for number in range(metadata.num_row_groups):
            rows = max(1, metadata.row_group(number).num_rows)
            yield from file.iter_batches(rows, [number], list(columns))


def _width(leaf: Any) -> int:
    return _WIDTHS.get(leaf.converted_type) or _WIDTHS.get(leaf.physical_type, _ENTRY)


def _parts(path: str | os.PathLike[str], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = _size(batch)
    if size <= PIECE_BYTES or (batch.num_rows == 1 and size <= ROW_BYTES):
        yield _plain(batch)
    elif batch.num_rows == 1:
        raise UserError(
            f"{path} has a row of {size >> 20:,} MiB: at most {ROW_BYTES >> 20:,} MiB are read"
        )
    else:
        middle = batch.num_rows // 2
        for part in (batch[:middle], batch[middle:]):
            yield from _parts(path, part)


def _size(batch: pa.RecordBatch) -> int:
    return sum(_bytes(column) for column in batch.columns)


def _bytes(column: Any) -> int:
    """Memory of a column that stores every text, also repeated ones."""
    if pa.types.is_dictionary(column.type):
        # Each row's text counts, also a repeated one, in 64 bits: a small file may describe
        # gigabytes.
        lengths = pc.binary_length(column.dictionary).fill_null(0).to_numpy()
        indices = column.indices.drop_null().to_numpy()
        return _ENTRY * len(column) + int(lengths[indices].sum(dtype=np.int64))
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return _ENTRY * len(column) + _bytes(column.flatten())
    if isinstance(column, pa.StructArray):
        return sum(map(_bytes, column.flatten()))
    if pa.types.is_nested(column.type):
        raise pa.ArrowInvalid(f"a column of {column.type}, which nothing here has")
    return column.nbytes


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with every text stored as such, without dictionaries."""
    columns = [column.cast(_plain_type(column.type)) for column in batch.columns]
    plain = pa.RecordBatch.from_arrays(columns, batch.schema.names)
    plain.validate(full=True)  # checks that texts are UTF-8
    return plain


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind
