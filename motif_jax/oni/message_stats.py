"""Every text that an agent has seen, with its counts, its label and its rewards."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

NO_LABEL = -1
_FIRST_ROOM = 1024


class MessageStats:
    """Texts in the order of their first step, with columns [room]; about 200 bytes each. For one thread at a time."""

    _COLUMNS = (
        ("count", np.int64, 0),
        ("first_step", np.int64, 0),
        ("first_number", np.int64, 0),
        ("first_time", np.float64, 0.0),
        ("label", np.int8, NO_LABEL),
        ("probability", np.float32, np.nan),
        ("used", np.bool_, False),
        ("earned", np.float64, 0.0),
    )
    count: np.ndarray  # steps that showed the text
    first_step: np.ndarray  # environment steps of the run before the batch that showed it first
    first_number: np.ndarray  # of that batch
    first_time: np.ndarray  # seconds of the clock when it was made
    label: np.ndarray
    probability: np.ndarray  # of yes, NaN where none is known
    used: np.ndarray  # whether a batch with the text was paid since it has its label
    # Sum of its rewards, each step discounted by its count in the episode, without coefficient.
    earned: np.ndarray

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._rows: dict[str, int] = {}
        for name, dtype, empty in self._COLUMNS:
            setattr(self, name, np.full(_FIRST_ROOM, empty, dtype))

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, text: str) -> int | None:
        return self._rows.get(text)

    def rows(self, texts: Iterable[str], step: int, number: int) -> np.ndarray:
        """Rows int64 [N] of texts; new ones are added as first seen at `step`, in batch `number`."""
        rows = []
        for text in texts:
            row = self._rows.get(text)
            if row is None:
                row = self._rows[text] = len(self.texts)
                self.texts.append(text)
                self._reserve(row + 1)
                self.first_step[row], self.first_number[row] = step, number
                self.first_time[row] = time.time()
            rows.append(row)
        return np.array(rows, np.int64)

    def _reserve(self, rows: int) -> None:
        room = len(self.count)
        if rows > room:
            extra = max(room, rows - room)
            for name, dtype, empty in self._COLUMNS:
                setattr(self, name, np.concatenate([getattr(self, name), np.full(extra, empty, dtype)]))

    def use(self, rows: np.ndarray) -> np.ndarray:
        """Marks the texts at `rows` as paid by their label; returns the rows that are new among them."""
        first = rows[~self.used[rows]]
        self.used[first] = True
        return first

    def columns(self) -> dict[str, Any]:
        """A copy of the texts and of all arrays [N], which `pack` takes."""
        size = len(self)
        return {
            "texts": self.texts[:],
            **{name: getattr(self, name)[:size].copy() for name, *_ in self._COLUMNS},
        }

    @staticmethod
    def pack(columns: Mapping[str, Any]) -> np.ndarray:
        """The output of `columns` as bytes, uint8 [n]."""
        file, arrays = io.BytesIO(), dict(columns)
        texts = [text.encode() for text in arrays.pop("texts")]
        lengths = np.array([len(text) for text in texts], np.int64)
        np.savez_compressed(file, _texts=np.frombuffer(b"".join(texts), np.uint8), _lengths=lengths, **arrays)
        return np.frombuffer(file.getvalue(), np.uint8)

    @classmethod
    def unpack(cls, data: np.ndarray) -> MessageStats:
        stats = cls()
        with np.load(io.BytesIO(data.tobytes())) as arrays:
            joined, ends = arrays["_texts"].tobytes(), np.cumsum(arrays["_lengths"]).tolist()
            stats.texts = [joined[start:end].decode() for start, end in itertools.pairwise([0, *ends])]
            stats._rows = {text: row for row, text in enumerate(stats.texts)}
            stats._reserve(len(stats))
            for name, *_ in cls._COLUMNS:
                getattr(stats, name)[: len(stats)] = arrays[name]
        return stats
