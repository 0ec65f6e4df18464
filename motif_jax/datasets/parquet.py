"""A pairs dataset with its preferences as one parquet file, and back, without loss."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.datasets.pairs import PairsDataset
from motif_jax.datasets.targets import probabilities_path
from motif_jax.datasets.writer import PairsWriter
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_save_npy

FORMAT, VERSION = b"motif_jax.pairs", 1
ROWS_PER_GROUP = 2048
SIDES = ("first", "second")


def array_names(dataset: PairsDataset) -> list[str]:
    """All arrays of a dataset: 'data/message', ..., 'info/score', ..., sorted."""
    return [f"data/{name}" for name in dataset.data] + [f"info/{name}" for name in dataset.info]


def write(dataset: PairsDataset, path: str | Path, arrays: Sequence[str] | None = None) -> Iterator[int]:
    """Writes the file and yields the number of pairs done so far; it is there once all are.

    Columns: `pair`; `preference/NAME` (int8, 0 first, 1 second, 2 tie, 3 unknown) and
    `probabilities/NAME` (first, second, tie) of each annotation; and two for each array, `data/NAME/first` and
    `data/NAME/second`: message as bytes without trailing zeros (a list of them where sub-sequences are longer
    than 1), numbers as lists in C order. Shapes and dtypes stand in the file's metadata.

    Args:
      dataset: what to write.
      path: the file.
      arrays: which arrays, by `array_names`; all by default.

    Raises:
      UserError: an array is not there or damaged.
    """
    names = list(arrays) if arrays is not None else array_names(dataset)
    columns = {name: _open(dataset, name) for name in names}
    labels = {name: dataset.preference(name) for name in dataset.preference_names()}
    chances = {
        name: np.load(probabilities_path(dataset, name))
        for name in labels
        if probabilities_path(dataset, name).exists()
    }
    described = {
        "num_pairs": dataset.num_pairs,
        "length": dataset.length,
        "arrays": {
            name: {"shape": array.shape[2:], "dtype": str(array.dtype)} for name, array in columns.items()
        },
        "dataset": dataset.meta,
    }
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = None
    try:
        for start in range(0, dataset.num_pairs, ROWS_PER_GROUP):
            rows = slice(start, min(start + ROWS_PER_GROUP, dataset.num_pairs))
            table = _table(columns, labels, chances, rows)
            if writer is None:
                metadata = {FORMAT: str(VERSION).encode(), b"described": json.dumps(described).encode()}
                writer = pq.ParquetWriter(temporary, table.schema.with_metadata(metadata), compression="zstd")
            writer.write_table(table)
            yield rows.stop
    finally:
        if writer is not None:
            writer.close()
    os.replace(temporary, path)


def _open(dataset: PairsDataset, name: str) -> np.ndarray:
    group, _, rest = name.partition("/")
    return dataset.info[rest] if group == "info" else dataset.data[rest]


def _table(
    columns: Mapping[str, np.ndarray], labels: Mapping[str, Any], chances: Mapping[str, Any], rows: slice
) -> pa.Table:
    found: dict[str, pa.Array] = {"pair": pa.array(np.arange(rows.start, rows.stop))}
    found |= {f"preference/{name}": pa.array(values[rows]) for name, values in labels.items()}
    found |= {f"probabilities/{name}": _numbers(values[rows]) for name, values in chances.items()}
    for name, array in columns.items():
        part = np.asarray(array[rows])
        for side, label in enumerate(SIDES):
            values = part[:, side]
            found[f"{name}/{label}"] = _texts(values) if name == "data/message" else _numbers(values)
    return pa.table(found)


def _numbers(values: np.ndarray) -> pa.Array:
    """[N] as a column of numbers, [N, ...] as one of fixed-size lists."""
    if values.dtype.kind == "U":
        return pa.array(values.tolist())
    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))


def _texts(values: np.ndarray) -> pa.Array:
    """Messages uint8 [N, L, 256] as bytes, or lists of bytes where L > 1."""
    rows = [[step.tobytes().rstrip(b"\0") for step in row] for row in values]
    if values.shape[1] == 1:
        return pa.array([row[0] for row in rows], pa.binary())
    return pa.array(rows, pa.list_(pa.binary(), values.shape[1]))


def read(path: str | Path, folder: str | Path) -> Iterator[int]:
    """Makes a dataset folder of a file that `write` wrote, and yields the number of pairs done so far.

    Raises:
      UserError: the file is none of these, or the folder already holds a dataset.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} is not a parquet file: {error}") from None
    metadata = file.schema_arrow.metadata or {}
    if metadata.get(FORMAT) != str(VERSION).encode():
        raise UserError(f"{path} is not a pairs dataset in parquet (version {VERSION})")
    described = json.loads(metadata[b"described"])
    folder, num_pairs = Path(folder), described["num_pairs"]
    columns = set(file.schema_arrow.names)
    labels = {n: np.full(num_pairs, 3, np.int8) for n in _annotations(columns, "preference/")}
    chances = {
        n: np.full((num_pairs, 3), np.nan, np.float32) for n in _annotations(columns, "probabilities/")
    }
    with PairsWriter(folder, num_pairs) as writer:
        arrays = {
            name: writer.create(name, tuple(about["shape"]), about["dtype"])
            for name, about in described["arrays"].items()
        }
        start = 0
        for batch in file.iter_batches(ROWS_PER_GROUP):
            rows = slice(start, start + batch.num_rows)
            for name, array in arrays.items():
                for side, label in enumerate(SIDES):
                    column = batch.column(f"{name}/{label}")
                    part = array[rows, side]
                    part[...] = (
                        _from_texts(column, part) if name == "data/message" else _from_numbers(column, part)
                    )
            for name, values in labels.items():
                values[rows] = batch.column(f"preference/{name}").to_numpy()
            for name, values in chances.items():
                values[rows] = _from_numbers(batch.column(f"probabilities/{name}"), values[rows])
            start = rows.stop
            yield start
        # Labels first: a folder with dataset.json is whole.
        for name, values in labels.items():
            atomic_save_npy(folder / "preference" / f"{name}.npy", values)
        for name, values in chances.items():
            atomic_save_npy(folder / "annotations" / name / "probabilities.npy", values)
        written = ("num_pairs", "arrays", "digests", "content_hash")
        writer.commit({key: value for key, value in described["dataset"].items() if key not in written})
    staging = folder / ".staging"
    if staging.exists():
        staging.rmdir()


def _annotations(columns: set[str], prefix: str) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in columns if name.startswith(prefix))


def _from_numbers(column: pa.Array, like: np.ndarray) -> np.ndarray:
    if like.dtype.kind == "U":
        return np.array(column.to_pylist(), like.dtype)
    flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return flat.to_numpy(zero_copy_only=False).reshape(like.shape)


def _from_texts(column: pa.Array, like: np.ndarray) -> np.ndarray:
    values = np.zeros(like.shape, np.uint8)
    for row, cell in zip(values, column.to_pylist(), strict=True):
        for step, text in zip(row, [cell] if isinstance(cell, bytes) else cell, strict=True):
            step[: len(text)] = np.frombuffer(text, np.uint8)
    return values
