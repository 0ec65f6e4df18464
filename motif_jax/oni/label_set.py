"""The labels of a run as training data: distinct texts, and examples of one text or of two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.core.errors import UserError
from motif_jax.oni.label_queue import Label

WIDTH = 256
_FIRST_ROOM = 256


class Examples(NamedTuple):
    """The first examples of a set; nothing in it changes when the set grows."""

    messages: np.ndarray  # uint8 [M, 256], distinct texts, padded with zeros
    places: np.ndarray  # int32 [N, items], rows of `messages`
    labels: np.ndarray  # int8 [N], a verdict's place in its form
    targets: np.ndarray  # float32 [N], the probability of yes, or of the first of two, to be learned


def as_bytes(text: str) -> np.ndarray:
    """A text as networks read it: UTF-8, uint8 [256], padded with zeros; UserError if it has more than 256 bytes."""
    data = text_bytes.encode(text)
    if len(data) > WIDTH:
        raise UserError(f"a text of {len(data)} bytes: a reward network reads at most {WIDTH}")
    return np.frombuffer(data.ljust(WIDTH, b"\0"), np.uint8)


class LabelSet:
    """Grows by labels, whose order is that of the label log. One thread adds; any thread reads the result of `first`.

    Args:
      items: texts of an example.
      certain: the target of each label.
      soft: whether the annotator's probability, where there is one, is the target.
    """

    def __init__(self, items: int, certain: tuple[float, ...], soft: bool) -> None:
        self._certain, self._soft, self._size = certain, soft, 0
        self._rows: dict[str, int] = {}
        self._messages = np.zeros((_FIRST_ROOM, WIDTH), np.uint8)
        self._places = np.zeros((_FIRST_ROOM, items), np.int32)
        self._labels = np.zeros(_FIRST_ROOM, np.int8)
        self._targets = np.zeros(_FIRST_ROOM, np.float32)

    def __len__(self) -> int:
        return self._size

    def add(self, label: Label) -> None:
        size = self._size
        if size == len(self._labels):
            # New arrays, since a running training reads the old ones.
            self._places, self._labels = _doubled(self._places), _doubled(self._labels)
            self._targets = _doubled(self._targets)
        self._places[size] = [self._row(text) for text in label.items]
        self._labels[size] = label.label
        soft = label.probability if self._soft else None
        self._targets[size] = self._certain[label.label] if soft is None else soft
        self._size += 1

    def _row(self, text: str) -> int:
        row = self._rows.get(text)
        if row is None:
            row = self._rows[text] = len(self._rows)
            if row == len(self._messages):
                self._messages = _doubled(self._messages)
            self._messages[row] = as_bytes(text)
        return row

    def first(self, size: int) -> Examples:
        if size > self._size:
            raise ValueError(f"{size} examples of {self._size}")
        return Examples(self._messages, self._places[:size], self._labels[:size], self._targets[:size])


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])
