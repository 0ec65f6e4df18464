"""Reads a pairs dataset, published or from the collect stage.

    data/NAME.npy        [pairs, 2, length, ...]  observations of the two sub-sequences of each pair
    info/NAME.npy        [pairs, 2]               numbers about each sub-sequence and its game
    preference/NAME.npy  int8 [pairs]             0 first, 1 second, 2 tie, 3 unknown
    dataset.json                                  origin, counts, digests (not in the published one)

Arrays are memory-mapped and checked on first use; unused arrays may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import load_array, read_json
from motif_jax.core.verdicts import PAIR
from motif_jax.motif.pairs import layout


class PairsDataset:
    """An open dataset, made by `open`: arrays of `data` and `info` by name; `meta` is {} without dataset.json."""

    def __init__(self, folder: Path, meta: dict[str, Any], num_pairs: int, length: int) -> None:
        self.folder, self.meta, self.num_pairs, self.length = folder, meta, num_pairs, length
        self.data: Mapping[str, np.ndarray] = _Arrays(folder / "data", self._check_data)
        self.info: Mapping[str, np.ndarray] = _Arrays(folder / "info", self._check_info)
        self._content_hash: str | None = None

    @classmethod
    def open(cls, folder: str | Path, need: Sequence[str] = ("message",)) -> PairsDataset:
        """Opens `folder` and checks the arrays in `need` ('NAME' of data/, 'info/NAME' of info/); UserError for a damaged or odd one."""
        folder = Path(folder)
        _check_folder(folder)
        first = next((name for name in need if not name.startswith("info/")), "message")
        path = folder / "data" / f"{first}.npy"
        array = map_array(path)
        if array.ndim < 3 or array.shape[1] != 2:
            raise UserError(f"{path}: shape {array.shape}, expected [pairs, 2, length, ...]")
        dataset = cls(folder, _read_meta(folder), array.shape[0], array.shape[2])
        for name in need:
            dataset.array(name)
        return dataset

    def array(self, name: str) -> np.ndarray:
        """The memory-mapped array 'NAME' or 'data/NAME' of data/, or 'info/NAME'."""
        group, _, rest = name.rpartition("/")
        return (self.info if group == "info" else self.data)[rest]

    def digest(self, name: str) -> str:
        """The digest of an array 'data/NAME' or 'info/NAME'; UserError if it is not the one in dataset.json."""
        found = layout.array_digest(self.array(name))
        if self.meta.get("digests", {}).get(name, found) != found:
            raise UserError(
                f"{self.folder / name}.npy was changed after the dataset was written: its digest is not the one in "
                f"{layout.META}"
            )
        return found

    def preference_names(self) -> tuple[str, ...]:
        return tuple(sorted(path.stem for path in (self.folder / "preference").glob("*.npy")))

    def preference(self, name: str) -> np.ndarray:
        """Labels of annotation `name`: int8 [pairs] of 0 first, 1 second, 2 tie, 3 unknown; UserError for a wrong file."""
        path, shape = self.folder / "preference" / f"{name}.npy", (self.num_pairs,)
        if not path.exists():
            have = ", ".join(self.preference_names()) or "none"
            raise UserError(f"{path} does not exist: this dataset has the annotations {have}")
        labels = map_array(path)
        if labels.dtype.kind not in "iu":
            raise UserError(f"{path}: dtype {labels.dtype}, expected int8")
        if labels.shape != shape:
            raise UserError(f"{path}: shape {labels.shape}, expected {shape}, one label for each pair")
        wrong = np.flatnonzero(~np.isin(labels, list(PAIR.labels)))
        if wrong.size:
            raise UserError(
                f"{path}: label {labels[wrong[0]]} at pair {wrong[0]} ({wrong.size} such labels); allowed are "
                + ", ".join(f"{label} {name}" for label, name in PAIR.labels.items())
            )
        return np.asarray(labels, dtype=np.int8)

    def content_hash(self) -> str:
        """Hash of the judges' inputs (messages, status, rewards, scores): 32 hexadecimal digits; UserError as of `digest`."""
        if self._content_hash is None:
            there = [name for name in layout.CONTENT_ARRAYS if (self.folder / f"{name}.npy").is_file()]
            self._content_hash = layout.combine_digests({name: self.digest(name) for name in there})
        return self._content_hash

    def _check_data(self, name: str, path: Path, array: np.ndarray) -> None:
        known = layout.DATA_ARRAYS.get(name)
        if array.shape[:3] != (self.num_pairs, 2, self.length):
            raise UserError(
                f"{path}: shape {array.shape} does not begin with ({self.num_pairs}, 2, {self.length}): pairs, 2, length "
                "as in the other arrays of this dataset"
            )
        if known is None:
            return
        if array.shape[3:] not in known.steps:
            allowed = " or ".join(str(list(step)) for step in known.steps)
            raise UserError(f"{path}: shape {array.shape}, expected {allowed} for one step")
        if array.dtype.kind not in known.kinds or known.itemsize not in (None, array.dtype.itemsize):
            raise UserError(f"{path}: dtype {array.dtype}, expected {known.dtype}")

    def _check_info(self, name: str, path: Path, array: np.ndarray) -> None:
        if array.shape != (self.num_pairs, 2):
            raise UserError(f"{path}: shape {array.shape}, expected ({self.num_pairs}, 2)")


class _Arrays(Mapping[str, np.ndarray]):
    def __init__(self, folder: Path, check: Callable[[str, Path, np.ndarray], None]) -> None:
        self._folder, self._check = folder, check
        self._open: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._open:
            path = self._folder / f"{name}.npy"
            array = map_array(path)
            self._check(name, path, array)
            self._open[name] = array
        return self._open[name]

    def __contains__(self, name: object) -> bool:
        return (self._folder / f"{name}.npy").is_file()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self._folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a pairs dataset: no such folder")
    if (folder / layout.STAGING).exists() and not (folder / layout.META).exists():
        maker = _maker(folder)
        raise UserError(f"{folder} is incomplete: {maker} was interrupted, run the same command again")
    if not (folder / "data").is_dir():
        nested = [child.name for child in sorted(folder.iterdir()) if (child / "data").is_dir()]
        hint = f"; did you mean {folder / nested[0]}?" if nested else ""
        if any(folder.glob("*_part_*")):
            hint = "; join the split archive first: cat *_part_* > all.zip && unzip all.zip"
        raise UserError(f"{folder} is not a pairs dataset: it has no folder data/{hint}")


def _maker(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["stage"])
    except (OSError, ValueError, KeyError, TypeError):
        return "what writes it"


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / layout.META
    remedy = "restore it from a copy, or remove it: a dataset without it is read as the published one"
    if not path.exists():
        return {}
    found = read_json(path, remedy)
    if not isinstance(found.get("digests", {}), dict):
        raise UserError(f"{path} is damaged (digests is not an object): {remedy}")
    return found


def map_array(path: Path) -> np.ndarray:
    """Memory-maps a .npy file. Raises UserError: it is missing, damaged, empty or not numeric."""
    if not path.exists():
        have = ", ".join(sorted(other.stem for other in path.parent.glob("*.npy"))) or "none"
        raise UserError(f"{path} is missing: the arrays in {path.parent.name}/ are {have}")
    try:
        array = load_array(path, mapped=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged, cut off or no .npy array of numbers: {error}") from None
    if array.size == 0:
        raise UserError(f"{path} holds no pairs")
    return array
