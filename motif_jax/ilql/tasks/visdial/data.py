"""Reads the published files of visual dialogue: dialogues and reward caches as JSON, features of
pictures as HDF5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json

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


def read_dialogues(key: str, path: str) -> list[Scene]:
    """Reads ILQL's list of dialogues, or VisDial's format, which numbers questions and answers."""
    content = read_json(path, f"config.{key} takes {_LAYOUT}", kind=object)
    questions = answers = None
    if isinstance(content, dict) and isinstance(content.get("data"), dict):
        data = content["data"]
        questions = data.get("questions")
        answers = data.get("answers")
        content = data.get("dialogs")
    assert isinstance(content, list)
    scenes = []
    for number, item in enumerate(content):
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
    cache = read_json(path, f"config.{key} takes a list of ranks for each dialogue", kind=list)
    rewarded = []
    for scene, row in zip(scenes, cache, strict=True):
        count = len(scene.answers) + 1
        if len(row) != count:
            raise UserError(
                f"config.{key}={path}: dialogue {scene.image} must have {count} numbers, the initial value and one for each answer"
            )
        rewarded.append(scene._replace(initial=float(row[0]), progress=tuple(map(float, row[1:]))))
    return rewarded


class Features:
    """Rows of the array images_SPLIT, read on demand from HDF5, or from .npz with the same names.

    `normalise` divides rows by their length. HDF5 needs h5py (pip install 'motif-jax[visdial]').
    """

    def __init__(self, path: str, split: str, normalise: bool = True) -> None:
        self._normalise = normalise
        name = f"images_{split}"
        if path.endswith(".npz"):
            with np.load(path, allow_pickle=False) as file:
                self._rows = file[name]
        else:
            import h5py

            # Stays open: a row is read when a picture is talked about.
            self._rows = h5py.File(path, "r")[name]

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def __getitem__(self, row: int) -> np.ndarray:
        """Float64 [D]."""
        values = np.asarray(self._rows[row], np.float64)
        length = float(np.sqrt((values * values).sum()))
        return values / length if self._normalise and length else values
