"""Reads the published files of visual dialogue: dialogues and reward caches as JSON, features of pictures as HDF5."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.support import config as checks
from motif_jax.support.capacity import available_memory
from motif_jax.support.errors import UserError
from motif_jax.support.files import NO_ARRAY, parse_json

_LAYOUT = "a list of {caption, dialog: [{question, answer}]}"


class Scene(NamedTuple):
    """A picture and its dialogue.

    Attributes:
      questions, answers: one per turn.
      initial, progress: the true picture's rank before the first question, and the gain by each answer; None if unknown.
      image: row of the picture's features.
    """

    caption: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    initial: float | None
    progress: tuple[float, ...] | None
    image: int


def read_json_file(key: str, path: str) -> Any:
    """The value in a JSON file. Raises UserError, which names the config's `key`: the file cannot be read."""
    if not path or not os.path.isfile(path):
        raise UserError(f"config.{key}='{path}': must be an existing file")
    try:
        return parse_json(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"config.{key}={path}: cannot be read as JSON ({error})") from None


def read_dialogues(key: str, path: str) -> list[Scene]:
    """Reads dialogues: ILQL's list, or VisDial's format, which numbers questions and answers.

    Raises:
      UserError: a dialogue, which the error names, has another format.
    """
    content = read_json_file(key, path)
    questions: Sequence[str] | None = None
    answers: Sequence[str] | None = None
    if isinstance(content, dict) and isinstance(content.get("data"), dict):
        content = content["data"]
        questions, answers = content.get("questions"), content.get("answers")
        content = content.get("dialogs")
    if not isinstance(content, list) or not content:
        raise UserError(f"config.{key}={path}: must be {_LAYOUT}, found {type(content).__name__}")
    scenes = []
    for number, item in enumerate(content):
        try:
            turns = item["dialog"]
            asked = [_text(turn["question"], questions).removesuffix("?") + "?" for turn in turns]
            said = [_text(turn["answer"], answers) for turn in turns]
            scenes.append(Scene(_text(item["caption"]), tuple(asked), tuple(said), None, None, number))
        except (KeyError, TypeError, IndexError, UnicodeEncodeError) as error:
            missing = f"no {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, UnicodeEncodeError):
                missing = f"half of a character stands in it, {error.reason}"
            raise UserError(
                f"config.{key}={path}: dialogue {number} is invalid ({missing}): must be {_LAYOUT}"
            ) from None
    return scenes


def _text(value: Any, numbered: Sequence[str] | None = None) -> str:
    if numbered is not None and type(value) is int:
        value = numbered[value]
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # raises for surrogates, which JSON may hold but files and tokenizers reject
    return value


def with_rewards(key: str, path: str, scenes: Sequence[Scene]) -> list[Scene]:
    """Adds a reward cache, which has a list per dialogue: the initial value, then the gain by each answer.

    Raises:
      UserError: the file is no cache of these dialogues.
    """
    cache = read_json_file(key, path)
    if not isinstance(cache, list) or len(cache) != len(scenes):
        held = f"{len(cache)} dialogues" if isinstance(cache, list) else type(cache).__name__
        raise UserError(
            f"config.{key}={path}: holds {held}, must have the {len(scenes)} of the dialogues' file"
        )
    found = []
    for scene, row in zip(scenes, cache, strict=True):
        if (
            not isinstance(row, list)
            or len(row) != len(scene.answers) + 1
            or not all(map(checks.is_finite, row))
        ):
            raise UserError(
                f"config.{key}={path}: dialogue {scene.image} must have {len(scene.answers) + 1} finite numbers, the initial "
                "value and one for each answer"
            )
        found.append(scene._replace(initial=float(row[0]), progress=tuple(map(float, row[1:]))))
    return found


class Features:
    """Features of pictures, read on demand from HDF5, or from .npz with the same names.

    Args:
      key: config key, for errors.
      split: 'train', 'val' or 'test'; reads the array images_SPLIT.
      normalise: whether rows are divided by their length.

    Raises:
      UserError: the file or the array is missing, or h5py is not installed.
    """

    def __init__(self, key: str, path: str, split: str, normalise: bool = True) -> None:
        self._key, self._path, self._name = key, path, f"images_{split}"
        self._normalise = normalise
        if not path or not os.path.isfile(path):
            raise UserError(f"config.{key}='{path}': must be an existing file, .h5 or .npz")
        shape = self._rows.shape
        if len(shape) != 2:
            raise UserError(
                f"config.{key}={path}: {self._name} must have a row for each picture, its shape is {list(shape)}"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}

    @functools.cached_property
    def _rows(self) -> Any:
        try:
            if self._path.endswith(".npz"):
                return _from_npz(self._path, self._name)
            return _open_hdf5(self._key, self._path)[self._name]
        except KeyError:
            raise UserError(
                f"config.{self._key}={self._path}: has no array {self._name}, which the split needs"
            ) from None
        except NO_ARRAY as error:
            raise UserError(f"config.{self._key}={self._path}: cannot be read ({error})") from None

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitem__(self, row: int) -> np.ndarray:
        """Float64 [D]."""
        try:
            found = np.asarray(self._rows[row], np.float64)
        except NO_ARRAY as error:
            raise UserError(f"config.{self._key}={self._path}: cannot be read ({error})") from None
        length = float(np.sqrt((found * found).sum()))
        return found / length if self._normalise and length else found


def _from_npz(path: str, name: str) -> np.ndarray:
    file = np.load(path, allow_pickle=False)
    if isinstance(file, np.ndarray):
        raise ValueError("one array, not an archive of them")
    with file:
        size, free = file.zip.getinfo(f"{name}.npy").file_size, available_memory()
        if free is not None and size > free:
            raise MemoryError(
                f"{name} takes {size / 2**20:,.0f} MiB of memory, {free / 2**20:,.0f} MiB are left"
            )
        return file[name]


def _open_hdf5(key: str, path: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise UserError(
            f"config.{key}={path}: reading HDF5 needs h5py: pip install 'motif-jax[visdial]'"
        ) from None
    return h5py.File(path, "r")
