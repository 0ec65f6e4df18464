"""Counts of a reward's labels and payments, for the metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.core.verdicts import Form
from motif_jax.oni.label_queue import Label


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
