"""Writes a dataset of tokens item by item; resumes after the last saved item."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, naming, read_json, regular_file, sync
from motif_jax.lm.token_data import layout

_PROGRESS = "progress.json"


class TokensWriter(contextlib.ExitStack):
    """Arrays that grow in FOLDER.part, which `commit` renames to the dataset; UserError for damaged
    files of a killed writer.

    Args:
      vocab_size: upper bound of the tokens.
      token_columns, item_columns: dtype of each column of tokens, and of items.
      source: origin of the items; a writer resumes one with the same source, tokenizer and columns.

    `items` is the number of saved items, with those of the resumed writer.
    """

    def __init__(
        self,
        folder: str | Path,
        vocab_size: int,
        tokenizer: str,
        token_columns: Mapping[str, Any] = {},
        item_columns: Mapping[str, Any] = {},
        source: Mapping[str, Any] = {},
    ) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._vocab_size = vocab_size
        # The manifest is written last, so that a folder with one is whole.
        if (self._folder / layout.MANIFEST).exists():
            raise UserError(f"{folder} already holds a dataset of tokens: choose another folder")
        self._staging = self._folder.with_name(self._folder.name + layout.STAGING)
        self._remedy = f"remove {self._staging}, it is made again"
        token_dtypes = {layout.TOKENS: layout.token_dtype(vocab_size)}
        for column, dtype in token_columns.items():
            token_dtypes[f"{layout.TOKEN_COLUMNS}/{column}"] = np.dtype(dtype)
        item_dtypes = {layout.OFFSETS: np.dtype(np.int64)}
        for column, dtype in item_columns.items():
            item_dtypes[f"{layout.ITEM_COLUMNS}/{column}"] = np.dtype(dtype)
        dtypes = {**token_dtypes, **item_dtypes}
        self._identity = {
            "vocab_size": vocab_size,
            "tokenizer": tokenizer,
            "source": dict(source),
            "dtypes": {name: dtype.str for name, dtype in dtypes.items()},
        }

        # What a killed writer with the same identity saved; anything else there is removed.
        self.items, self._tokens = self._saved_counts()
        rows = dict.fromkeys(token_dtypes, self._tokens) | dict.fromkeys(item_dtypes, self.items)
        if self.items:
            # Offsets have one entry more than items.
            rows[layout.OFFSETS] = self.items + 1
        # All are checked before the first is opened, since opening changes a file.
        for name, dtype in dtypes.items():
            path = self._staging / f"{name}.npy"
            damage = _damage(path, dtype, rows[name]) if rows[name] else None
            if damage:
                raise UserError(f"{path} {damage}: {self._remedy}")
        self._arrays = {}
        for name, dtype in dtypes.items():
            self._arrays[name] = _GrowingArray(self._staging / name, dtype, rows[name])
            self.callback(self._arrays[name].close)
        if not self.items:
            # Item 0 begins at token 0; each item adds where it ends.
            self._arrays[layout.OFFSETS].append(np.zeros(1, np.int64))
        self._added = self.items

    def _saved_counts(self) -> tuple[int, int]:
        """(items, tokens) that an equal writer saved; clears the files of a different one."""
        path = self._staging / _PROGRESS
        if path.exists():
            progress = read_json(path, self._remedy, keys=("identity", "items", "tokens"))
            # Else the texts, the tokenizer or the columns are others: the files are removed below.
            if progress["identity"] == self._identity:
                if not all(
                    type(progress[key]) is int and progress[key] >= 0 for key in ("items", "tokens")
                ):
                    raise UserError(
                        f"{path} is damaged (items or tokens are not counts): {self._remedy}"
                    )
                return progress["items"], progress["tokens"]
        if self._staging.exists():
            shutil.rmtree(self._staging)
        return 0, 0

    def add(
        self,
        tokens: Sequence[int] | np.ndarray,
        token_columns: Mapping[str, Any] = {},
        item_columns: Mapping[str, Any] = {},
    ) -> None:
        """Appends an item, with a number for each token or item per column. Raises ValueError:
        wrong tokens or columns.
        """
        # Everything is checked before the first array grows: half an item would shift all later
        # ones.
        row = np.asarray(tokens)
        if row.ndim != 1 or (row.size and (row.min() < 0 or row.max() >= self._vocab_size)):
            raise ValueError(f"an item is a row of tokens from 0 to {self._vocab_size - 1}")
        token_numbers = {
            f"{layout.TOKEN_COLUMNS}/{name}": np.asarray(v) for name, v in token_columns.items()
        }
        item_numbers = {
            f"{layout.ITEM_COLUMNS}/{name}": np.asarray([v]) for name, v in item_columns.items()
        }
        columns = self._arrays.keys() - {layout.TOKENS, layout.OFFSETS}
        misshapen = any(numbers.shape != row.shape for numbers in token_numbers.values())
        if {*token_numbers, *item_numbers} != columns or misshapen:
            raise ValueError(
                f"an item has a number for each token or item in {', '.join(sorted(columns))}"
            )

        self._arrays[layout.TOKENS].append(row)
        self._tokens += row.size
        self._arrays[layout.OFFSETS].append(np.array([self._tokens]))
        for name, numbers in (token_numbers | item_numbers).items():
            self._arrays[name].append(numbers)
        self._added += 1

    def save(self) -> None:
        """Writes what was added, so that a later writer resumes after it."""
        for array in self._arrays.values():
            array.flush()
        # After the arrays: it may never claim more rows than they have.
        progress = {"identity": self._identity, "items": self._added, "tokens": self._tokens}
        atomic_write_json(self._staging / _PROGRESS, progress)
        self.items = self._added

    def commit(self) -> str:
        """Writes the manifest, moves all files into place, and returns the content's digest."""
        self.save()
        file_digests = {
            name: digests.of_file(array.finish()) for name, array in self._arrays.items()
        }
        content = repr((sorted(file_digests.items()), self._identity["tokenizer"]))
        content_digest = digests.of_bytes(content.encode())
        manifest = {
            **self._identity,
            "items": self._added,
            "tokens": self._tokens,
            "digests": file_digests,
            "content": content_digest,
        }
        # Into the staging folder: the rename below makes the dataset appear with its manifest.
        atomic_write_json(self._staging / layout.MANIFEST, manifest)
        for folder in {array.path.parent for array in self._arrays.values()}:
            sync(folder)
        os.replace(self._staging, self._folder)
        sync(self._folder.parent)
        # After the rename: a kill in between leaves a file that no reader opens.
        (self._folder / _PROGRESS).unlink()
        return content_digest


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    """The header of a .npy file; numpy leaves space for a first axis of any length, so it is
    equally long for any `rows`.
    """
    buffer = io.BytesIO()
    fields = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (rows,),
    }
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


def _damage(path: Path, dtype: np.dtype[Any], rows: int) -> str | None:
    """Describes the damage of an array with `rows` saved rows; None if it is intact."""
    start = _header(dtype, 0)
    try:
        with open(path, "rb") as file:
            header = file.read(len(start))
            size = os.fstat(file.fileno()).st_size - len(start)
    except OSError as error:
        return f"cannot be read ({error})"
    # It has 0 rows while the array grows, or all rows if the writer was killed in `commit`.
    if header not in (start, _header(dtype, size // dtype.itemsize)):
        return f"is damaged (it is not an array of {dtype} with one axis)"
    if size < rows * dtype.itemsize:
        return f"is cut off ({size:,} of {rows * dtype.itemsize:,} bytes)"
    return None


class _GrowingArray:
    """A one-dimensional .npy file that grows by rows; `finish` writes their number into the
    header.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], rows: int) -> None:
        self.path = path.with_name(path.name + ".npy")
        self._dtype = dtype
        self._rows = rows
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = _header(dtype, 0)
        with naming(self.path):
            self._file = open(self.path, "r+b" if rows else "w+b", opener=regular_file)  # noqa: SIM115 - closed by close
            # 0 rows until `finish`, so that a file that a kill left is read as empty and not as too
            # long.
            self._file.write(header)
            # Cuts off what was written after the last save, of which only a part may be on the
            # disk.
            self._file.truncate(len(header) + rows * dtype.itemsize)
            self._file.seek(0, os.SEEK_END)

    def append(self, values: np.ndarray) -> None:
        with naming(self.path):
            self._file.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self._rows += len(values)

    def flush(self) -> None:
        """Writes all rows to the disk."""
        with naming(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def finish(self) -> Path:
        """Writes the number of rows, and closes the file; returns its path."""
        self._file.seek(0)
        self._file.write(_header(self._dtype, self._rows))
        self.flush()
        self.close()
        return self.path

    def close(self) -> None:
        self._file.close()
