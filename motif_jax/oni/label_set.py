"""The labels of a run as training data: distinct texts, and examples of one text or of two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.oni.label_queue import Label

# Bytes of a text that reward networks read.
WIDTH = 256
# Examples, and distinct texts, of a fresh set's arrays, which are doubled when they are full.
_FIRST_ROOM = 256


class Examples(NamedTuple):
    """The first examples of a set; nothing in it changes when the set grows.

    Attributes:
      messages: uint8 [M, 256], distinct texts, padded with zeros.
      rows: int32 [N, items], the rows of `messages` that hold an example's texts.
      labels: int8 [N], index of the verdict in its form.
      targets: float32 [N], the probability of yes, or of the first of two, to be learned.
    """

    messages: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    targets: np.ndarray


class LabelSet:
    """Grows by labels, whose order is that of the label log. One thread adds; any thread reads the
    result of `first`.

    Args:
      items: texts of an example.
      certain: the target of each label.
      soft: whether the annotator's probability, where there is one, is the target.
    """

    def __init__(self, items: int, certain: tuple[float, ...], soft: bool) -> None:
        self._certain = certain
        self._soft = soft
        self._size = 0
        # Text -> its row in `_messages`.
        self._row_of: dict[str, int] = {}
        self._messages = np.zeros((_FIRST_ROOM, WIDTH), np.uint8)
        self._rows = np.zeros((_FIRST_ROOM, items), np.int32)
        self._labels = np.zeros(_FIRST_ROOM, np.int8)
        self._targets = np.zeros(_FIRST_ROOM, np.float32)

    def __len__(self) -> int:
        return self._size

    def add(self, label: Label) -> None:
        """Adds an example after the others, whose arrays do not change: a training may read them
        meanwhile.
        """
        size = self._size
        if size == len(self._labels):
            # New arrays, since a running training reads the old ones.
            self._rows = _doubled(self._rows)
            self._labels = _doubled(self._labels)
            self._targets = _doubled(self._targets)
        self._rows[size] = [self._row(text) for text in label.items]
        self._labels[size] = label.label
        if self._soft and label.probability is not None:
            self._targets[size] = label.probability
        else:
            self._targets[size] = self._certain[label.label]
        self._size += 1

    def _row(self, text: str) -> int:
        """The row of a text, which is added if it is new."""
        row = self._row_of.get(text)
        if row is None:
            row = len(self._row_of)
            self._row_of[text] = row
            if row == len(self._messages):
                self._messages = _doubled(self._messages)
            self._messages[row] = text_bytes.padded_rows([text], WIDTH)[0]
        return row

    def first(self, size: int) -> Examples:
        """The first `size` examples, as views. Raises ValueError: there are fewer."""
        if size > self._size:
            raise ValueError(f"{size} examples of {self._size}")
        return Examples(
            self._messages, self._rows[:size], self._labels[:size], self._targets[:size]
        )


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])
