"""Reads pairs datasets, published or from the collect stage.

    data/NAME.npy        [pairs, 2, length, ...]  observations of the two sub-sequences of each pair
    info/NAME.npy        [pairs, 2]               numbers about each sub-sequence and its game
    preference/NAME.npy  int8 [pairs]             0 first, 1 second, 2 tie, 3 unknown
    dataset.json                                  origin, counts, digests (not in the published one)

Arrays are memory-mapped and checked on first use; unused arrays may be missing. `open_datasets`
reads several datasets as one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.files import load_array
from motif_jax.core.verdicts import PAIR
from motif_jax.motif.pairs import layout


class PairsDataset:
    """An open dataset, made by `open`: arrays of `data` and `info` by name; `meta` is {} without
    dataset.json.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], num_pairs: int, length: int) -> None:
        self.folder = folder
        self.meta = meta
        self.num_pairs = num_pairs
        self.length = length
        self.data: Mapping[str, np.ndarray] = _Arrays(folder / "data", self._check_data)
        self.info: Mapping[str, np.ndarray] = _Arrays(folder / "info", self._check_info)
        self._content_hash: str | None = None

    @classmethod
    def open(cls, folder: str | Path, need: Sequence[str] = ("message",)) -> PairsDataset:
        """Opens `folder` and checks the arrays in `need` ('NAME' of data/, 'info/NAME' of info/).

        Raises UserError: a needed array does not have the pairs of the others, or steps as its name
        says. A folder whose collection was stopped has no data/ yet.
        """
        folder = Path(folder)
        # The number of pairs and their length are read off one array; the others must agree with
        # it.
        data_names = [name for name in need if not name.startswith("info/")]
        path = folder / "data" / f"{data_names[0] if data_names else 'message'}.npy"
        array = load_array(path, mapped=True)
        dataset = cls(folder, _read_meta(folder), array.shape[0], array.shape[2])
        # Opened and checked now; other arrays when they are first read.
        for name in need:
            dataset.array(name)
        return dataset

    def array(self, name: str) -> np.ndarray:
        """The memory-mapped array 'NAME' or 'data/NAME' of data/, or 'info/NAME'."""
        group, _, array_name = name.rpartition("/")
        arrays = self.info if group == "info" else self.data
        return arrays[array_name]

    def digest(self, name: str) -> str:
        """The digest of an array 'data/NAME' or 'info/NAME'; UserError if it is not the one in
        dataset.json.
        """
        digest = layout.array_digest(self.array(name))
        # The published dataset has no digests to compare with.
        if self.meta.get("digests", {}).get(name, digest) != digest:
            raise UserError(
                f"{self.folder / name}.npy was changed after the dataset was written: its digest is not the one in "
                f"{layout.META}"
            )
        return digest

    def preference_names(self) -> tuple[str, ...]:
        """The annotations of the dataset, by the names of their label files."""
        return tuple(sorted(path.stem for path in (self.folder / "preference").glob("*.npy")))

    def preference(self, name: str) -> np.ndarray:
        """Labels of annotation `name`: int8 [pairs] of 0 first, 1 second, 2 tie, 3 unknown;
        UserError for those of other pairs, or of another meaning.
        """
        path = self.folder / "preference" / f"{name}.npy"
        if not path.exists():
            names = ", ".join(self.preference_names()) or "none"
            raise UserError(f"{path} does not exist: this dataset has the annotations {names}")
        labels = load_array(path, mapped=True)
        if labels.shape != (self.num_pairs,):
            raise UserError(
                f"{path}: shape {labels.shape}, expected {(self.num_pairs,)}, one label for each pair"
            )
        wrong = np.flatnonzero(~np.isin(labels, list(PAIR.labels)))
        if wrong.size:
            raise UserError(
                f"{path}: label {labels[wrong[0]]} at pair {wrong[0]} ({wrong.size} such labels); allowed are "
                + ", ".join(f"{label} {name}" for label, name in PAIR.labels.items())
            )
        return np.asarray(labels, dtype=np.int8)

    def probabilities(self, name: str) -> np.ndarray:
        """Probabilities float32 [pairs, 3] (first, second, tie) of annotation `name`, NaN where
        unknown; UserError for those of other pairs, or of another meaning.
        """
        path = self.folder / "annotations" / name / "probabilities.npy"
        probabilities = load_array(path, mapped=True)
        if probabilities.shape != (self.num_pairs, 3):
            raise UserError(f"{path}: shape {probabilities.shape}, expected ({self.num_pairs}, 3)")
        finite = probabilities[np.isfinite(probabilities).all(axis=1)]
        # Judges round their probabilities.
        if finite.size and (finite.min() < -1e-3 or np.abs(finite.sum(axis=1) - 1).max() > 1e-2):
            raise UserError(f"{path}: rows must be probabilities that sum to 1")
        return probabilities.astype(np.float32)

    def content_hash(self) -> str:
        """Hash of the judges' inputs (messages, status, rewards, scores): 32 hexadecimal digits;
        UserError as of `digest`.
        """
        # Hashing reads the arrays whole, so that it is done once.
        if self._content_hash is None:
            names = [
                name for name in layout.CONTENT_ARRAYS if (self.folder / f"{name}.npy").is_file()
            ]
            self._content_hash = layout.combine_digests({name: self.digest(name) for name in names})
        return self._content_hash

    def _check_data(self, name: str, path: Path, array: np.ndarray) -> None:
        """Raises UserError unless an array of data/ has the pairs, length, step shape and dtype
        that its name says.
        """
        if array.shape[:3] != (self.num_pairs, 2, self.length):
            raise UserError(
                f"{path}: shape {array.shape} does not begin with ({self.num_pairs}, 2, {self.length}): pairs, 2, length "
                "as in the other arrays of this dataset"
            )
        layout.check_steps(name, path, array)

    def _check_info(self, name: str, path: Path, array: np.ndarray) -> None:
        if array.shape != (self.num_pairs, 2):
            raise UserError(f"{path}: shape {array.shape}, expected ({self.num_pairs}, 2)")


class _Arrays(Mapping[str, np.ndarray]):
    """The arrays of a folder by name, each memory-mapped and checked when it is first read."""

    def __init__(self, folder: Path, check: Callable[[str, Path, np.ndarray], None]) -> None:
        self._folder = folder
        self._check = check
        self._open: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._open:
            path = self._folder / f"{name}.npy"
            array = load_array(path, mapped=True)
            self._check(name, path, array)
            self._open[name] = array
        return self._open[name]

    # Mapping's own would open the array, and raise where there is none.
    def __contains__(self, name: object) -> bool:
        return (self._folder / f"{name}.npy").is_file()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self._folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class JoinedDataset(PairsDataset):
    """Several datasets as one: the pairs of all, in order, each with the labels of its own folder.

    It has the arrays and annotations that all parts have. An array is joined in memory when it is
    first read. `folder` names all parts, and `meta` is {}.
    """

    def __init__(self, parts: Sequence[PairsDataset]) -> None:
        folder = Path(",".join(str(part.folder) for part in parts))
        super().__init__(folder, {}, sum(part.num_pairs for part in parts), parts[0].length)
        self._parts = parts
        self.data = _JoinedArrays([part.data for part in parts])
        self.info = _JoinedArrays([part.info for part in parts])

    def preference_names(self) -> tuple[str, ...]:
        shared = set.intersection(*(set(part.preference_names()) for part in self._parts))
        return tuple(sorted(shared))

    def preference(self, name: str) -> np.ndarray:
        return np.concatenate([part.preference(name) for part in self._parts])

    def probabilities(self, name: str) -> np.ndarray:
        return np.concatenate([part.probabilities(name) for part in self._parts])

    def content_hash(self) -> str:
        hashes = [part.content_hash() for part in self._parts]
        return digests.of_bytes("\n".join(hashes).encode())


class _JoinedArrays(Mapping[str, np.ndarray]):
    """The arrays that all parts have, each joined when it is first read."""

    def __init__(self, parts: Sequence[Mapping[str, np.ndarray]]) -> None:
        self._parts = parts
        self._joined: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._joined:
            self._joined[name] = np.concatenate([part[name] for part in self._parts])
        return self._joined[name]

    def __contains__(self, name: object) -> bool:
        return all(name in part for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(set.intersection(*(set(part) for part in self._parts))))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def open_datasets(
    folders: Sequence[str | Path], need: Sequence[str] = ("message",)
) -> PairsDataset:
    """Opens one dataset, or several as one; see `PairsDataset.open` and `JoinedDataset`.

    Raises UserError as `PairsDataset.open`, or ValueError where arrays in `need` do not fit each
    other.
    """
    parts = [PairsDataset.open(folder, need) for folder in folders]
    if len(parts) == 1:
        return parts[0]
    dataset = JoinedDataset(parts)
    for name in need:
        dataset.array(name)
    return dataset


def _read_meta(folder: Path) -> dict[str, Any]:
    """The content of dataset.json, {} without one."""
    path = folder / layout.META
    if not path.exists():
        return {}
    meta: dict[str, Any] = json.loads(path.read_bytes())
    return meta
