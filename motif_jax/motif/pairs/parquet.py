"""Converts a pairs dataset with its preferences to one parquet file and back, losslessly."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, replaced_file
from motif_jax.motif.pairs import layout
from motif_jax.motif.pairs.dataset import PairsDataset
from motif_jax.motif.pairs.targets import probabilities_path, read_probabilities
from motif_jax.motif.pairs.writer import PairsWriter

# Key and value of the file's metadata that identify the format.
FORMAT = b"motif_jax.pairs"
VERSION = 1
# Pairs of all columns that are in memory at a time, written or read.
ROWS_PER_GROUP = 2048
SIDES = ("first", "second")
# Allowed names in a file; none leads out of the dataset's folder.
_ARRAY = re.compile(r"(data|info)/[A-Za-z0-9_-]+")
_ANNOTATION = re.compile(r"[A-Za-z0-9_+=-][A-Za-z0-9_+=.-]*")
_MANIFEST = re.compile(_ANNOTATION.pattern + r"/[A-Za-z0-9_-]+\.json")


def array_names(dataset: PairsDataset) -> list[str]:
    """All arrays of a dataset: 'data/message', ..., 'info/score', ..."""
    return [f"data/{name}" for name in dataset.data] + [f"info/{name}" for name in dataset.info]


def write(
    dataset: PairsDataset, path: str | Path, arrays: Sequence[str] | None = None
) -> Iterator[int]:
    """Writes the file atomically; yields the number of pairs done so far.

    Columns: `pair`; for each annotation `preference/NAME` (int8, 0 first, 1 second, 2 tie, 3
    unknown) and `probabilities/NAME` (first, second, tie); for each array `data/NAME/first` and
    `data/NAME/second`. Messages are bytes without trailing zeros (lists of bytes for sub-sequences
    longer than 1), numbers are lists in C order. The metadata has shapes, dtypes and digests of the
    arrays, and the manifests of the annotations.

    `arrays` are names from `array_names`, None for all. Raises UserError: an array is missing,
    damaged, does not match its digest in dataset.json, or has a name that `read` refuses.
    """
    names = list(arrays) if arrays is not None else array_names(dataset)
    check_names(dataset, names)
    columns = {name: dataset.array(name) for name in names}
    digests = {name: dataset.digest(name) for name in names}
    labelled = dataset.preference_names()
    annotations = {f"preference/{name}": dataset.preference(name) for name in labelled}
    for name in labelled:
        if probabilities_path(dataset, name).exists():
            annotations[f"probabilities/{name}"] = read_probabilities(dataset, name)
    digests |= {name: layout.array_digest(array) for name, array in annotations.items()}

    description = {
        "num_pairs": dataset.num_pairs,
        "length": dataset.length,
        "arrays": {
            name: {"shape": array.shape[2:], "dtype": str(array.dtype)}
            for name, array in columns.items()
        },
        "digests": digests,
        "manifests": {name: _manifests(dataset.folder, name) for name in labelled},
        "dataset": dataset.meta,
    }
    metadata = {FORMAT: str(VERSION).encode(), b"described": json.dumps(description).encode()}
    # The types of the columns, read off the first row.
    schema = _table(columns, annotations, slice(0, 1)).schema.with_metadata(metadata)
    with (
        replaced_file(Path(path)) as part,
        # pyarrow reads a relative path with a colon as an address.
        pq.ParquetWriter(part.absolute(), schema, compression="zstd") as writer,
    ):
        for start in range(0, dataset.num_pairs, ROWS_PER_GROUP):
            rows = slice(start, min(start + ROWS_PER_GROUP, dataset.num_pairs))
            writer.write_table(_table(columns, annotations, rows))
            yield rows.stop


def check_names(dataset: PairsDataset, arrays: Sequence[str]) -> None:
    """Raises UserError where `read` would refuse the name of an array or an annotation of a
    dataset.
    """
    for name in arrays:
        if not _ARRAY.fullmatch(name):
            raise UserError(
                f"{dataset.folder / name}.npy: its name must be of letters, digits, _ or -"
            )
    for name in dataset.preference_names():
        path = dataset.folder / "preference" / f"{name}.npy"
        if not _ANNOTATION.fullmatch(name):
            raise UserError(
                f"{path}: its name must be of letters, digits, _, -, +, = or ., and not begin with a dot"
            )
        for file in sorted((dataset.folder / "annotations" / name).glob("*.json")):
            if not _MANIFEST.fullmatch(f"{name}/{file.name}"):
                raise UserError(f"{file}: its name must be of letters, digits, _ or -")


def _manifests(folder: Path, annotation: str) -> dict[str, Any]:
    """File name -> content, for the files that describe how labels were made."""
    paths = sorted((folder / "annotations" / annotation).glob("*.json"))
    try:
        return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    except ValueError as error:
        raise UserError(f"{folder / 'annotations' / annotation} is damaged: {error}") from None


def _table(
    columns: Mapping[str, np.ndarray], annotations: Mapping[str, np.ndarray], rows: slice
) -> pa.Table:
    """Some rows of all columns of the file."""
    table: dict[str, pa.Array] = {"pair": pa.array(np.arange(rows.start, rows.stop))}
    for name, values in annotations.items():
        table[name] = _numbers(values[rows])
    for name, array in columns.items():
        block = np.asarray(array[rows])
        for index, side in enumerate(SIDES):
            values = block[:, index]
            table[f"{name}/{side}"] = _texts(values) if name == "data/message" else _numbers(values)
    return pa.table(table)


def _numbers(values: np.ndarray) -> pa.Array:
    """A column of numbers from [N], or of fixed-size lists from [N, ...]."""
    if values.dtype.kind == "U":
        return pa.array(values.tolist())
    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))


def _texts(values: np.ndarray) -> pa.Array:
    """Messages uint8 [N, L, 256] as bytes, or as lists of bytes if L > 1."""
    rows = [[step.tobytes().rstrip(b"\0") for step in row] for row in values]
    if values.shape[1] == 1:
        return pa.array([row[0] for row in rows], pa.binary())
    return pa.array(rows, pa.list_(pa.binary(), values.shape[1]))


@dataclasses.dataclass(frozen=True)
class Contents:
    """A file's description of its contents.

    Attributes:
      arrays: name -> shape of one side of a pair, and dtype.
      annotations: columns with labels, 'preference/NAME', and with probabilities,
          'probabilities/NAME'.
      digests: name of an array or annotation -> digest.
      manifests: annotation -> file name -> description of how its labels were made.
      meta: dataset.json of the exported dataset.
    """

    path: Path
    num_pairs: int
    arrays: dict[str, tuple[tuple[int, ...], np.dtype]]
    annotations: list[str]
    digests: dict[str, str]
    manifests: dict[str, dict[str, Any]]
    meta: dict[str, Any]


def contents(path: str | Path) -> Contents:
    """Reads a file's description, and checks that its rows and columns are complete; UserError if
    it is not from `write`.
    """
    path = Path(path)
    try:
        with pq.ParquetFile(path.absolute()) as file:
            schema = file.schema_arrow
            rows = file.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} is not a parquet file: {error}") from None
    metadata = schema.metadata or {}
    if metadata.get(FORMAT) != str(VERSION).encode():
        raise UserError(f"{path} is not a pairs dataset in parquet (version {VERSION})")
    try:
        description = parse_json(metadata[b"described"])
        num_pairs = int(description["num_pairs"])
        meta = dict(description["dataset"])
        arrays = {
            str(name): (tuple(int(size) for size in about["shape"]), np.dtype(about["dtype"]))
            for name, about in description["arrays"].items()
        }
        manifests = {name: dict(files) for name, files in description["manifests"].items()}
        digests = dict(description["digests"])
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: its description cannot be read: {type(error).__name__}: {error}"
        ) from None
    annotations = [
        name for name in schema.names if name.startswith(("preference/", "probabilities/"))
    ]
    checked = Contents(path, num_pairs, arrays, annotations, digests, manifests, meta)
    _check(checked, {field.name: field.type for field in schema}, rows)
    return checked


def _entries(kind: pa.DataType, name: str) -> int:
    """Numbers of one side of a pair that a column of this type holds."""
    cells = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    return cells * layout.MESSAGE_BYTES if name == "data/message" else cells


def _check(contents: Contents, columns: Mapping[str, pa.DataType], rows: int) -> None:
    """Raises UserError where a name would lead out of the folder, or the columns do not hold what
    the description says.
    """
    path = contents.path
    # Names first, as they become paths.
    for name, (shape, dtype) in contents.arrays.items():
        if not _ARRAY.fullmatch(name) or dtype.hasobject or min(shape, default=0) < 0:
            raise UserError(f"{path}: {name} {dtype} {list(shape)} is not an array of a dataset")
    for name in contents.annotations:
        if not _ANNOTATION.fullmatch(name.partition("/")[2]):
            raise UserError(f"{path}: {name} cannot be an annotation's name")
    for annotation, files in contents.manifests.items():
        for file in files:
            name = f"{annotation}/{file}"
            if not _MANIFEST.fullmatch(name):
                raise UserError(f"{path}: {name} cannot be a manifest's name")

    # Then that every column is there, has its size, and has a row for each pair.
    needed = {f"{name}/{side}" for name in contents.arrays for side in SIDES}
    missing = sorted(needed - set(columns))
    if missing:
        raise UserError(f"{path}: the columns {', '.join(missing)} are missing")
    for name, (shape, _) in contents.arrays.items():
        # Checked before memory is allocated: a file may claim rows that its columns do not have.
        entries = [_entries(columns[f"{name}/{side}"], name) for side in SIDES]
        if entries != [math.prod(shape)] * 2:
            raise UserError(
                f"{path}: {name} {list(shape)} does not fit its columns of {entries} entries"
            )
    if rows != contents.num_pairs or not rows:
        raise UserError(
            f"{path} has {rows:,} rows, but its description says {contents.num_pairs:,} pairs"
        )


def read(path: str | Path, folder: str | Path) -> Iterator[int]:
    """Turns a file of `write` into a new dataset folder; yields the number of pairs done so far;
    UserError for any damage.
    """
    file_contents = contents(path)
    with PairsWriter(folder, file_contents.num_pairs) as writer:
        yield from _fill(file_contents, writer)
        for name, files in file_contents.manifests.items():
            for file, value in files.items():
                writer.add_json(f"annotations/{name}/{file.removesuffix('.json')}", value)
        # `commit` writes these keys itself.
        computed = ("num_pairs", "arrays", "digests", "content_hash")
        writer.commit(
            {key: value for key, value in file_contents.meta.items() if key not in computed}
        )


def _fill(contents: Contents, writer: PairsWriter) -> Iterator[int]:
    """Copies the columns into the writer's arrays, and checks their digests at the end."""
    arrays = {
        name: writer.create(name, shape, dtype) for name, (shape, dtype) in contents.arrays.items()
    }
    # In memory: `create` makes arrays of two sides, and labels are small.
    annotations: dict[str, np.ndarray] = {}
    for name in contents.annotations:
        if name.startswith("preference/"):
            annotations[name] = np.empty(contents.num_pairs, np.int8)
        else:
            annotations[name] = np.empty((contents.num_pairs, 3), np.float32)

    start = 0
    columns = [f"{name}/{side}" for name in arrays for side in SIDES] + list(annotations)
    for batch in _batches(contents.path, columns):
        rows = slice(start, start + batch.num_rows)
        for name, array in arrays.items():
            convert = _from_texts if name == "data/message" else _from_numbers
            for index, side in enumerate(SIDES):
                _put(contents.path, batch, f"{name}/{side}", array[rows, index], convert)
        for name, values in annotations.items():
            _put(contents.path, batch, name, values[rows], _from_numbers)
        start = rows.stop
        yield start

    # All rows are copied, and nothing is in its place yet: the last chance to refuse.
    digests = writer.digests()
    digests |= {name: layout.array_digest(values) for name, values in annotations.items()}
    for name, digest in digests.items():
        if contents.digests.get(name) != digest:
            raise UserError(
                f"{contents.path} is damaged: {name} is not what was exported, its digest differs"
            )
    for name, values in annotations.items():
        kind, _, annotation = name.partition("/")
        writer.add(
            name if kind == "preference" else f"annotations/{annotation}/probabilities", values
        )


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path.absolute()) as file:
            yield from file.iter_batches(ROWS_PER_GROUP, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def _put(
    path: Path,
    batch: pa.RecordBatch,
    name: str,
    out: np.ndarray,
    convert: Callable[..., np.ndarray],
) -> None:
    """Writes a column of a batch into `out`. Raises UserError: values are missing, or of another
    type or number.
    """
    column = batch.column(name)
    try:
        # pyarrow would make NaN of a missing number.
        if column.null_count:
            raise ValueError(f"{column.null_count} values are missing")
        out[...] = convert(column, out)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged: column {name}: {error}") from None


def _from_numbers(column: pa.Array, like: np.ndarray) -> np.ndarray:
    if like.dtype.kind == "U":
        return np.array(column.to_pylist(), like.dtype)
    flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    return flat.to_numpy(zero_copy_only=False).reshape(like.shape)


def _from_texts(column: pa.Array, like: np.ndarray) -> np.ndarray:
    """The inverse of `_texts`."""
    values = np.zeros(like.shape, np.uint8)
    for row, cell in zip(values, column.to_pylist(), strict=True):
        texts = [cell] if isinstance(cell, bytes) else cell
        for step, text in zip(row, texts, strict=True):
            step[: len(text)] = np.frombuffer(text, np.uint8)
    return values
