"""Every text that an agent has seen, with its counts, its label and its rewards."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

NO_LABEL = -1
# Texts of a fresh object's columns, which grow when they are full.
_FIRST_ROOM = 1024
# Columns with another name in the arrays of checkpoints.
_PACKED_NAMES = {"first_update": "first_number"}


class MessageStats:
    """Texts in the order of their first step, with columns [room]; about 200 bytes each. For one
    thread at a time.

    Attributes:
      texts: the texts; their index is the row in all columns.
      count: steps that showed the text.
      first_step: environment steps of the run before the batch that showed it first.
      first_update: `BatchMessages.update_index` of that batch.
      first_time: seconds of the clock (Unix time) when it was made.
      label: index of the verdict, NO_LABEL before there is one.
      probability: of yes, NaN where none is known.
      used: whether a batch with the text was paid since it has its label.
      earned: sum of its rewards, each step discounted by its count in the episode, without
          coefficient.
    """

    # Name, dtype, and value of a text of which nothing is known yet.
    _COLUMNS = (
        ("count", np.int64, 0),
        ("first_step", np.int64, 0),
        ("first_update", np.int64, 0),
        ("first_time", np.float64, 0.0),
        ("label", np.int8, NO_LABEL),
        ("probability", np.float32, np.nan),
        ("used", np.bool_, False),
        ("earned", np.float64, 0.0),
    )
    count: np.ndarray
    first_step: np.ndarray
    first_update: np.ndarray
    first_time: np.ndarray
    label: np.ndarray
    probability: np.ndarray
    used: np.ndarray
    earned: np.ndarray

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._rows: dict[str, int] = {}
        for name, dtype, empty in self._COLUMNS:
            setattr(self, name, np.full(_FIRST_ROOM, empty, dtype))

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, text: str) -> int | None:
        """The row of a text, None for one that was never seen."""
        return self._rows.get(text)

    def rows(self, texts: Iterable[str], step: int, update_index: int) -> np.ndarray:
        """Rows int64 [N] of texts; new ones are added as first seen at `step`, in the batch of
        update `update_index`.
        """
        rows = []
        for text in texts:
            row = self._rows.get(text)
            if row is None:
                row = len(self.texts)
                self._rows[text] = row
                self.texts.append(text)
                self._reserve(row + 1)
                self.first_step[row] = step
                self.first_update[row] = update_index
                self.first_time[row] = time.time()
            rows.append(row)
        return np.array(rows, np.int64)

    def _reserve(self, rows: int) -> None:
        """Makes room for `rows` texts, at least doubling the columns where they are full."""
        room = len(self.count)
        if rows > room:
            extra = max(room, rows - room)
            for name, dtype, empty in self._COLUMNS:
                setattr(
                    self, name, np.concatenate([getattr(self, name), np.full(extra, empty, dtype)])
                )

    def use(self, rows: np.ndarray) -> np.ndarray:
        """Marks the texts at `rows` as paid by their label; returns the rows that are new among
        them.
        """
        new_rows = rows[~self.used[rows]]
        self.used[new_rows] = True
        return new_rows

    def columns(self) -> dict[str, Any]:
        """A copy of the texts and of all arrays [N], which `pack` takes."""
        # Copies, which are packed while the next batch is paid.
        size = len(self)
        return {
            "texts": self.texts[:],
            **{name: getattr(self, name)[:size].copy() for name, *_ in self._COLUMNS},
        }

    @staticmethod
    def pack(columns: Mapping[str, Any]) -> np.ndarray:
        """The output of `columns` as bytes, uint8 [n]."""
        arrays = dict(columns)
        # Bytes and their lengths: numpy would pad all texts to the longest, or pickle them.
        texts = [text.encode() for text in arrays.pop("texts")]
        lengths = np.array([len(text) for text in texts], np.int64)
        joined = np.frombuffer(b"".join(texts), np.uint8)
        file = io.BytesIO()
        named = {_PACKED_NAMES.get(name, name): array for name, array in arrays.items()}
        np.savez_compressed(file, _texts=joined, _lengths=lengths, **named)
        return np.frombuffer(file.getvalue(), np.uint8)

    @classmethod
    def unpack(cls, data: np.ndarray) -> MessageStats:
        """The inverse of `pack`."""
        stats = cls()
        with np.load(io.BytesIO(data.tobytes())) as arrays:
            joined = arrays["_texts"].tobytes()
            ends = np.cumsum(arrays["_lengths"]).tolist()
            stats.texts = [
                joined[start:end].decode() for start, end in itertools.pairwise([0, *ends])
            ]
            stats._rows = {text: row for row, text in enumerate(stats.texts)}
            stats._reserve(len(stats))
            for name, *_ in cls._COLUMNS:
                getattr(stats, name)[: len(stats)] = arrays[_PACKED_NAMES.get(name, name)]
        return stats
