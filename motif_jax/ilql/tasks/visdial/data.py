"""Reads the published files of visual dialogue: dialogues and reward caches as JSON, features of
pictures as HDF5.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError
from motif_jax.core.files import NO_ARRAY, read_json

_LAYOUT = "a list of {caption, dialog: [{question, answer}]}"


class Scene(NamedTuple):
    """A picture (row `image` of the features) and its dialogue.

    `initial` is the true picture's rank before the first question, `progress` the gain by each
    answer; None if unknown.
    """

    caption: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    initial: float | None
    progress: tuple[float, ...] | None
    image: int


def read_json_file(key: str, path: str) -> Any:
    """The value in a JSON file. Raises UserError, which names the config's `key`: the file cannot
    be read.
    """
    checks.require(os.path.isfile(path), key, path, "an existing file")
    return read_json(path, f"config.{key} takes a JSON file", kind=object)


def read_dialogues(key: str, path: str) -> list[Scene]:
    """Reads ILQL's list of dialogues, or VisDial's format, which numbers questions and answers;
    raises UserError.
    """
    content = read_json_file(key, path)
    questions = answers = None
    if isinstance(content, dict) and isinstance(content.get("data"), dict):
        data = content["data"]
        questions = data.get("questions")
        answers = data.get("answers")
        content = data.get("dialogs")
    if not isinstance(content, list) or not content:
        raise UserError(f"config.{key}={path}: must be {_LAYOUT}, found {type(content).__name__}")
    scenes = []
    for number, item in enumerate(content):
        try:
            turns = item["dialog"]
            # The published files have questions without their mark.
            asked_questions = [
                _text(turn["question"], questions).removesuffix("?") + "?" for turn in turns
            ]
            spoken_answers = [_text(turn["answer"], answers) for turn in turns]
            scenes.append(
                Scene(
                    caption=_text(item["caption"]),
                    questions=tuple(asked_questions),
                    answers=tuple(spoken_answers),
                    initial=None,
                    progress=None,
                    image=number,
                )
            )
        except (KeyError, TypeError, IndexError, UnicodeEncodeError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, UnicodeEncodeError):
                why = f"half of a character stands in it, {error.reason}"
            raise UserError(
                f"config.{key}={path}: dialogue {number} is invalid ({why}): must be {_LAYOUT}"
            ) from None
    return scenes


def _text(value: Any, numbered: Sequence[str] | None = None) -> str:
    if numbered is not None and type(value) is int:
        value = numbered[value]
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # raises for surrogates, which JSON may hold but files and tokenizers reject
    return value


def with_rewards(key: str, path: str, scenes: Sequence[Scene]) -> list[Scene]:
    """Adds a reward cache, which has a list per dialogue: the initial value, then the gain by each
    answer; raises UserError.
    """
    cache = read_json_file(key, path)
    if not isinstance(cache, list) or len(cache) != len(scenes):
        content = f"{len(cache)} dialogues" if isinstance(cache, list) else type(cache).__name__
        raise UserError(
            f"config.{key}={path}: holds {content}, must have the {len(scenes)} of the dialogues' file"
        )
    rewarded = []
    for scene, row in zip(scenes, cache, strict=True):
        count = len(scene.answers) + 1
        if not (isinstance(row, list) and len(row) == count and all(map(checks.is_finite, row))):
            raise UserError(
                f"config.{key}={path}: dialogue {scene.image} must have {count} finite numbers, the initial value and one for "
                "each answer"
            )
        rewarded.append(scene._replace(initial=float(row[0]), progress=tuple(map(float, row[1:]))))
    return rewarded


class Features:
    """Rows of the array images_SPLIT, read on demand from HDF5, or from .npz with the same names.

    `normalise` divides rows by their length. Raises UserError, which names the config's `key`:
    there is no such array, or no h5py.
    """

    def __init__(self, key: str, path: str, split: str, normalise: bool = True) -> None:
        self._key = f"config.{key}={path}"  # for errors
        self._normalise = normalise
        name = f"images_{split}"
        checks.require(os.path.isfile(path), key, path, "an existing file, .h5 or .npz")
        try:
            if path.endswith(".npz"):
                self._rows = _from_npz(path, name)
            else:
                import h5py

                # Stays open: a row is read when a picture is talked about.
                self._rows = h5py.File(path, "r")[name]
        except KeyError:
            raise UserError(f"{self._key}: has no array {name}, which the split needs") from None
        except NO_ARRAY as error:
            raise self._unreadable(error) from None
        except ImportError:
            remedy = "pip install 'motif-jax[visdial]'"
            raise UserError(f"{self._key}: reading HDF5 needs h5py: {remedy}") from None
        shape = list(self._rows.shape)
        if len(shape) != 2:
            raise UserError(
                f"{self._key}: {name} must have a row for each picture, its shape is {shape}"
            )

    def _unreadable(self, error: Exception) -> UserError:
        return UserError(f"{self._key}: cannot be read ({error})")

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitem__(self, row: int) -> np.ndarray:
        """Float64 [D]."""
        try:
            values = np.asarray(self._rows[row], np.float64)
        except NO_ARRAY as error:
            raise self._unreadable(error) from None
        length = float(np.sqrt((values * values).sum()))
        return values / length if self._normalise and length else values


def _from_npz(path: str, name: str) -> Any:
    file = np.load(path, allow_pickle=False)
    if isinstance(file, np.ndarray):
        raise ValueError("one array, not an archive of them")
    with file:
        return file[name]
