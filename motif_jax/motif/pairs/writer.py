"""Writes a pairs dataset atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, new_array, sync
from motif_jax.motif.pairs import layout

# A folder with one of them is not overwritten.
PARTS = ("data", "info", "preference", "annotations")


def check_folder(folder: str | Path, staging: str | Path | None = None) -> None:
    """Rejects a folder with a complete or partial dataset, unless a killed writer left it
    (`staging`, by default .staging).
    """
    folder = Path(folder)
    if (folder / layout.META).exists():
        raise UserError(f"{folder} already holds a dataset: choose another folder")
    parts = [f"{name}/" for name in PARTS if (folder / name).exists()]
    if parts and not Path(staging or folder / layout.STAGING).exists():
        raise UserError(
            f"{folder} holds {', '.join(parts)} of a dataset that was not written here: choose another folder"
        )


class PairsWriter:
    """Arrays of known size, filled in any order and moved into place by `commit`.

    A writer clears the remains of a killed one with the same `staging`. dataset.json is written
    last and marks the dataset as complete.
    """

    def __init__(
        self, folder: str | Path, num_pairs: int, staging: str | Path | None = None
    ) -> None:
        """Prepares to write `num_pairs` pairs; `staging` has to be on the file system of `folder`.
        Raises as `check_folder`.
        """
        self._folder = Path(folder)
        self._num_pairs = num_pairs
        check_folder(folder, staging)
        self._staging = Path(staging or self._folder / layout.STAGING)
        # A caller's staging folder may hold more, and is left to the caller.
        self._removes_staging = staging is None
        self._build = self._staging / "assembled"
        self.discard()
        self._arrays: dict[str, np.memmap] = {}

    def __enter__(self) -> PairsWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # First: a removed file keeps its place on the disk as long as it is mapped.
        self._arrays.clear()
        if error is not None:
            self.discard()

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A writable array [pairs, 2, *shape] that becomes NAME.npy; OSError: the disk is full."""
        path = self._build / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._arrays[name] = new_array(path, dtype, (self._num_pairs, 2, *shape))
        return self._arrays[name]

    def discard(self) -> None:
        """Removes all that was written."""
        if self._build.exists():
            shutil.rmtree(self._build)

    def commit(self, meta: Mapping[str, Any]) -> str:
        """Moves the arrays into the dataset folder, writes dataset.json, and returns the content
        hash.

        dataset.json gets `meta`, `num_pairs`, `arrays` (shape, dtype), `digests` and
        `content_hash`. Raises UserError: a number is not finite.
        """
        for name, array in self._arrays.items():
            pair = layout.first_not_finite(array)
            if pair is not None:
                raise UserError(
                    f"{name} of pair {pair} is not finite: a dataset holds finite numbers only"
                )

        # Through fsync before anything is moved: after a crash of the machine dataset.json must not
        # stand beside arrays that are not on the disk.
        digests = {}
        layouts = {}
        for name, array in self._arrays.items():
            digests[name] = layout.array_digest(array)
            array.flush()
            sync(self._build / f"{name}.npy")
            layouts[name] = {"shape": list(array.shape), "dtype": str(array.dtype)}
        self._arrays.clear()

        for group in sorted(self._build.iterdir()):
            # Of a writer that was killed while it moved its arrays.
            target = self._folder / group.name
            if target.exists():
                shutil.rmtree(target)
            os.replace(group, target)
        shutil.rmtree(self._build)

        content_hash = layout.combine_digests(digests)
        facts = {"num_pairs": self._num_pairs, "arrays": layouts, "digests": digests}
        # Last: a dataset without it is incomplete.
        atomic_write_json(
            self._folder / layout.META, {**meta, **facts, "content_hash": content_hash}
        )
        if self._removes_staging:
            # Empty by now, since only the arrays lay there.
            self._staging.rmdir()
        return content_hash


def write_pairs(
    folder: str | Path,
    data: Mapping[str, np.ndarray],
    info: Mapping[str, np.ndarray] = {},
    meta: Mapping[str, Any] = {},
) -> str:
    """Writes arrays `data` [pairs, 2, length, ...] and `info` [pairs, 2] as a dataset, and returns
    its content hash.

    Raises UserError: `folder` holds a dataset already, or arrays are of other pairs than the first
    one. Shapes and dtypes of a step are checked when the dataset is opened.
    """
    first, array = next(iter(data.items()))
    expected = dict.fromkeys(data, array.shape[:3]) | dict.fromkeys(info, array.shape[:2])
    for name, other in {**data, **info}.items():
        # An array of one pair would be repeated for all.
        if other.shape[: len(expected[name])] != expected[name]:
            raise UserError(
                f"{name}: shape {other.shape} does not begin with {expected[name]} as {first}"
            )
    groups = {f"data/{name}": array for name, array in data.items()}
    groups |= {f"info/{name}": array for name, array in info.items()}
    with PairsWriter(folder, len(next(iter(groups.values())))) as writer:
        for name, array in groups.items():
            writer.create(name, array.shape[2:], array.dtype)[:] = array
        return writer.commit(meta)
