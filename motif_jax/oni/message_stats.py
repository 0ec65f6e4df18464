"""Every text that an agent has seen, with its counts, its label and its rewards (`MessageStats`),
and the counts of labels and payments for the metrics (`LearningMetrics`).
"""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.verdicts import Form
from motif_jax.oni.label_queue import Label

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


class LearningMetrics:
    """Sums since the run began, and since the last reading. For one thread at a time."""

    def __init__(self, form: Form) -> None:
        self._form = form
        # Labels of the run by their verdict.
        self._labels = [0] * len(form.verdicts)
        self._begin()

    def _begin(self) -> None:
        """Starts the sums since the last reading."""
        self._began = time.perf_counter()
        self._new_labels = 0
        # Steps paid, those of texts with a label, and those with a reward other than 0.
        self._steps = 0
        self._labelled_steps = 0
        self._rewarded_steps = 0
        self._version_age = 0
        self._lost_seconds = 0.0
        self._batches_to_use: list[int] = []
        self._seconds_to_use: list[float] = []

    def add_labels(self, labels: Sequence[Label]) -> None:
        """Counts labels that have taken effect."""
        self._new_labels += len(labels)
        self.restore(labels)

    def add_batch(
        self, counts: np.ndarray, has_label: np.ndarray, rewards: np.ndarray, version_age: int
    ) -> None:
        """Counts a batch that was paid.

        Args:
          counts: int [N], steps of each text.
          has_label: bool [N].
          rewards: float32 [N].
          version_age: batches since the reward last changed.
        """
        self._steps += int(counts.sum())
        self._labelled_steps += int(counts[has_label].sum())
        self._rewarded_steps += int(counts[rewards != 0].sum())
        self._version_age = version_age

    def add_first_uses(self, batches: np.ndarray, seconds: np.ndarray) -> None:
        """Counts texts whose label is used for the first time: batches and seconds since they were
        first seen.
        """
        self._batches_to_use += batches.tolist()
        self._seconds_to_use += seconds.tolist()

    def add_lost_seconds(self, seconds: float) -> None:
        """Counts time that a batch waited for labels and their bookkeeping."""
        self._lost_seconds += seconds

    def seconds(self) -> float:
        """Seconds since the last reading."""
        return max(1e-9, time.perf_counter() - self._began)

    def restore(self, labels: Sequence[Label]) -> None:
        """Counts labels of before the run was resumed."""
        for label in labels:
            self._labels[label.label] += 1

    def read(self) -> dict[str, float]:
        """Returns a row of metrics (docs/metrics.md), and resets the sums."""
        labels = sum(self._labels)
        steps = max(1, self._steps)
        row: dict[str, Any] = {"reward/labels": labels, "reward/labels_new": self._new_labels}
        for name, count in zip(self._form.verdicts, self._labels, strict=True):
            row[f"reward/label_share_{name}"] = count / max(1, labels)
        row |= {
            "reward/steps_labelled_share": self._labelled_steps / steps,
            "reward/steps_paid_share": self._rewarded_steps / steps,
            "reward/version_age": self._version_age,
            "reward/batches_to_first_use": _median(self._batches_to_use),
            "reward/seconds_to_first_use": _median(self._seconds_to_use),
            "reward/lost_share": self._lost_seconds / self.seconds(),
        }
        self._begin()
        return {name: float(value) for name, value in row.items()}


def _median(values: Sequence[float]) -> float:
    """The median, 0 of nothing."""
    return float(np.median(values)) if values else 0.0
