"""Datasets of tokens on disk: written item by item (`TokensWriter`), read (`TokensDataset`), and
made of a training's items in a part to learn from and one to hold out (`Tokenisation`).

tokens.npy              uint16 or int32 [tokens]  all items, concatenated
offsets.npy             int64 [items + 1]         item i is tokens[offsets[i] : offsets[i + 1]]
token_columns/NAME.npy  [tokens]                  a number for each token, such as a reward
item_columns/NAME.npy   [items]                   a number for each item, such as the length of its
                                                  prompt
tokens.json             the tokenizer, counts, digests, origin of the texts; written last
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from motif_jax.core import digests, seeds
from motif_jax.core.errors import UserError
from motif_jax.core.files import (
    atomic_write_json,
    naming,
    read_json,
    regular_file,
    sync,
)
from motif_jax.core.progress import Progress

# Folder of the datasets in a run's folder, and the datasets in it.
TOKENS = "tokens"
TRAIN = "train"
HELD_OUT = "held_out"
PARTS = (TRAIN, HELD_OUT)
MANIFEST = "tokens.json"
_STAGING = ".part"  # suffix of a dataset's folder while it is written
_PROGRESS = "progress.json"
_KEYS = ("tokenizer", "vocab_size", "items", "tokens", "dtypes", "digests", "content")
# Arrays of a dataset, and folders of such.
_ALL_TOKENS = "tokens"
_OFFSETS = "offsets"
_TOKEN_COLUMNS = "token_columns"
_ITEM_COLUMNS = "item_columns"
# Items that are tokenised together.
GROUP_ITEMS = 256
# Groups between two saves.
SAVE_EVERY_GROUPS = 64
# Largest denominator of a share: 0.4 becomes 2 of 5, which no float is exactly.
_FINEST = 10**6
Item = TypeVar("Item")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest dtype of tokens of the vocabulary."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


class TokensDataset:
    """An open dataset with memory-mapped arrays, `manifest` being the content of tokens.json; it is
    written last, so that a folder with it is whole.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        remedy = "give a dataset of tokens, such as tokens/train of a run"
        self.manifest: dict[str, Any] = read_json(self.folder / MANIFEST, remedy, keys=_KEYS)
        # An empty array cannot be memory-mapped.
        mode: Any = "r" if self.num_tokens else None
        arrays = {
            name: np.load(self.folder / f"{name}.npy", mmap_mode=mode)
            for name in self.manifest["dtypes"]
        }
        self.tokens = arrays[_ALL_TOKENS]
        self.offsets = arrays[_OFFSETS]
        self.token_columns: Mapping[str, np.ndarray] = _columns(arrays, _TOKEN_COLUMNS)
        self.item_columns: Mapping[str, np.ndarray] = _columns(arrays, _ITEM_COLUMNS)

    def check_digests(self) -> None:
        """Reads every file. Raises UserError: a file, which the error names, has changed."""
        for name, digest in self.manifest["digests"].items():
            path = self.folder / f"{name}.npy"
            if not path.is_file() or digests.of_file(path) != digest:
                raise UserError(f"{path} was changed after it was written: write the dataset again")

    @property
    def num_items(self) -> int:
        return self.manifest["items"]

    @property
    def num_tokens(self) -> int:
        return self.manifest["tokens"]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each item, int64 [items]."""
        return np.diff(self.offsets)

    def item(self, index: int) -> np.ndarray:
        """The tokens of an item, [length]."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def _columns(arrays: Mapping[str, np.ndarray], group: str) -> dict[str, np.ndarray]:
    """The arrays of the files in a folder, by column."""
    prefix = f"{group}/"
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


class TokensWriter(contextlib.ExitStack):
    """Arrays that grow in FOLDER.part, which `commit` renames to the dataset; a later writer goes
    on after the last saved item.

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
        if (self._folder / MANIFEST).exists():
            raise UserError(f"{folder} already holds a dataset of tokens: choose another folder")
        self._staging = self._folder.with_name(self._folder.name + _STAGING)
        self._remedy = f"remove {self._staging}, it is made again"
        token_dtypes = {_ALL_TOKENS: token_dtype(vocab_size)}
        for column, dtype in token_columns.items():
            token_dtypes[f"{_TOKEN_COLUMNS}/{column}"] = np.dtype(dtype)
        item_dtypes = {_OFFSETS: np.dtype(np.int64)}
        for column, dtype in item_columns.items():
            item_dtypes[f"{_ITEM_COLUMNS}/{column}"] = np.dtype(dtype)
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
            rows[_OFFSETS] = self.items + 1
        # All are checked before the first is opened, since opening changes a file. One that is
        # shorter than its saved rows would be filled up with zeros.
        for name, dtype in dtypes.items():
            path = self._staging / f"{name}.npy"
            size = len(_header(dtype, 0)) + rows[name] * dtype.itemsize
            if rows[name] and path.stat().st_size < size:
                raise UserError(f"{path} is cut off: {self._remedy}")
        self._arrays = {}
        for name, dtype in dtypes.items():
            self._arrays[name] = _GrowingArray(self._staging / name, dtype, rows[name])
            self.callback(self._arrays[name].close)
        if not self.items:
            # Item 0 begins at token 0; each item adds where it ends.
            self._arrays[_OFFSETS].append(np.zeros(1, np.int64))
        self._added = self.items

    def _saved_counts(self) -> tuple[int, int]:
        """(items, tokens) that an equal writer saved; clears the files of a different one."""
        path = self._staging / _PROGRESS
        if path.exists():
            progress = read_json(path, self._remedy, keys=("identity", "items", "tokens"))
            # Else the texts, the tokenizer or the columns are others: the files are removed below.
            if progress["identity"] == self._identity:
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
            f"{_TOKEN_COLUMNS}/{name}": np.asarray(v) for name, v in token_columns.items()
        }
        item_numbers = {
            f"{_ITEM_COLUMNS}/{name}": np.asarray([v]) for name, v in item_columns.items()
        }
        columns = self._arrays.keys() - {_ALL_TOKENS, _OFFSETS}
        misshapen = any(numbers.shape != row.shape for numbers in token_numbers.values())
        if {*token_numbers, *item_numbers} != columns or misshapen:
            raise ValueError(
                f"an item has a number for each token or item in {', '.join(sorted(columns))}"
            )

        self._arrays[_ALL_TOKENS].append(row)
        self._tokens += row.size
        self._arrays[_OFFSETS].append(np.array([self._tokens]))
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
        atomic_write_json(self._staging / MANIFEST, manifest)
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


class HeldOut(NamedTuple):
    """A share of the items, evenly spread: every n-th item where the share is 1 / n."""

    share: Fraction
    turn: int  # index of the first held-out item where the share is 1 / n; drawn from the seed

    @classmethod
    def of(cls, share: float, seed: int) -> HeldOut:
        """Makes it from a config's share, in (0, 1], and its seed."""
        every = round(1 / share)
        fraction = Fraction(1, every)
        if every <= _FINEST:
            fraction = Fraction(share).limit_denominator(_FINEST)
        return cls(fraction, seeds.derive(seed, "held out") % every)

    def holds(self, index: int | np.ndarray) -> Any:
        """Whether the item of an index, or of each index int64 [N], is held out: a bool, or bool
        [N].
        """
        numerator = self.share.numerator
        denominator = self.share.denominator
        # Of the first n items n * share are held out, rounded down: an item is where the count
        # rises.
        shifted = index + denominator - 1 - self.turn
        count_before = shifted * numerator // denominator
        count_with = (shifted + 1) * numerator // denominator
        return count_with > count_before


@dataclasses.dataclass(frozen=True)
class Tokenisation(Generic[Item]):
    """Tokenisation of a training's items; for vocabulary, columns and source see `TokensWriter`."""

    vocab_size: int
    tokenizer: str
    source: Mapping[str, Any]
    add: Callable[[TokensWriter, Sequence[Item]], None]  # tokenises items and adds them to a writer
    token_columns: Mapping[str, Any]
    item_columns: Mapping[str, Any]
    too_few: str  # the error for a part without items, with {} for the part's purpose
    unit: str  # of the progress
    amount: Callable[[Item], int] = lambda item: 1  # units of an item

    def split(
        self,
        folder: Path,
        items: Iterable[tuple[str, Item]],
        total: int,
        stopped: Callable[[], bool],
    ) -> dict[str, TokensDataset] | None:
        """Writes (part, item) pairs below `folder`, unless both parts exist; the datasets by part,
        None after a request to stop.
        """
        # A resumed run tokenises nothing, but checks below that tokenizer and texts are the same.
        complete = all((folder / part / MANIFEST).is_file() for part in PARTS)
        if not complete and not self._write(folder, items, total, stopped):
            return None
        datasets = {part: TokensDataset(folder / part) for part in PARTS}
        for part, dataset in datasets.items():
            if dataset.manifest["tokenizer"] != self.tokenizer:
                raise UserError(
                    f"{dataset.folder} was tokenised by another tokenizer: choose another --workdir"
                )
            if _contents(dataset.manifest["source"]) != _contents({**self.source, "part": part}):
                raise UserError(
                    f"{dataset.folder} was tokenised from data that have changed since: restore them, or choose another --workdir"
                )
            dataset.check_digests()
        return datasets

    def _write(
        self,
        folder: Path,
        items: Iterable[tuple[str, Item]],
        total: int,
        stopped: Callable[[], bool],
    ) -> bool:
        """Writes the datasets that are not complete; False after a request to stop, with all
        saved.
        """
        with ExitStack() as stack:
            writers = self._open_writers(folder, stack)
            progress = stack.enter_context(Progress(total, self.unit, "tokenise"))
            # From the first item on, also after a kill: which part an item is of depends on those
            # before it.
            remaining = iter(items)
            done = 0
            # Items of each part so far, those included that a killed writer saved.
            counts = dict.fromkeys(PARTS, 0)
            for number in itertools.count(1):
                group = list(itertools.islice(remaining, GROUP_ITEMS))
                if not group:
                    break
                for part, writer in writers.items():
                    part_items = [item for item_part, item in group if item_part == part]
                    # Items that a killed writer saved are read again and not added again.
                    saved = max(0, writer.items - counts[part])
                    self.add(writer, part_items[saved:])
                    counts[part] += len(part_items)
                done += sum(self.amount(item) for _, item in group)
                progress.update(min(done, total))
                # Asked once a group: what was added is saved before the run ends.
                stop = stopped()
                if stop or number % SAVE_EVERY_GROUPS == 0:
                    for writer in writers.values():
                        writer.save()
                if stop:
                    return False

            for part, writer in writers.items():
                if not counts[part]:
                    raise UserError(
                        self.too_few.format("to learn from" if part == TRAIN else "to hold out")
                    )
                writer.commit()
        return True

    def _open_writers(self, folder: Path, stack: ExitStack) -> dict[str, TokensWriter]:
        """Writers of the parts that are not complete; `stack` closes them."""
        writers = {}
        for part in PARTS:
            source = {**self.source, "part": part}
            if (folder / part / MANIFEST).is_file():
                if TokensDataset(folder / part).manifest["source"] == source:
                    continue
                # The missing part would be of another split.
                shutil.rmtree(folder / part)
            writer = TokensWriter(
                folder / part,
                self.vocab_size,
                self.tokenizer,
                self.token_columns,
                self.item_columns,
                source,
            )
            writers[part] = stack.enter_context(writer)
        return writers


def _contents(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source by the digests of its files, which may have moved."""
    return {**source, "files": sorted(source.get("files", {}).values())}
