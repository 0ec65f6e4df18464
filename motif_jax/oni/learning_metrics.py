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
        self._labels = [0] * len(form.verdicts)
        self._begin()

    def _begin(self) -> None:
        self._new = self._steps = self._labelled = self._paid = self._age = 0
        self._lost, self._since = 0.0, time.perf_counter()
        self._batches_to_use: list[int] = []
        self._seconds_to_use: list[float] = []

    def labelled(self, labels: Sequence[Label]) -> None:
        self._new += len(labels)
        self.restore(labels)

    def paid(self, counts: np.ndarray, labelled: np.ndarray, paid: np.ndarray, age: int) -> None:
        """Counts a batch: steps int [N] of each text, whether it has a label, its value, batches of the version before."""
        self._steps += int(counts.sum())
        self._labelled += int(counts[labelled].sum())
        self._paid += int(counts[paid != 0].sum())
        self._age = age

    def used(self, batches: np.ndarray, seconds: np.ndarray) -> None:
        """Counts texts whose label is used for the first time: batches and seconds since they were first seen."""
        self._batches_to_use += batches.tolist()
        self._seconds_to_use += seconds.tolist()

    def spent(self, seconds: float) -> None:
        self._lost += seconds

    def seconds(self) -> float:
        return max(1e-9, time.perf_counter() - self._since)

    def restore(self, labels: Sequence[Label]) -> None:
        """Counts labels of before the run was resumed."""
        for label in labels:
            self._labels[label.label] += 1

    def read(self) -> dict[str, float]:
        total, steps = max(1, sum(self._labels)), max(1, self._steps)
        shares = dict(zip(self._form.verdicts, self._labels, strict=True))
        row: dict[str, Any] = {
            "reward/labels": sum(self._labels),
            "reward/labels_new": self._new,
            **{f"reward/label_share_{name}": count / total for name, count in shares.items()},
            "reward/steps_labelled_share": self._labelled / steps,
            "reward/steps_paid_share": self._paid / steps,
            "reward/version_age": self._age,
            "reward/batches_to_first_use": _median(self._batches_to_use),
            "reward/seconds_to_first_use": _median(self._seconds_to_use),
            "reward/lost_share": self._lost / self.seconds(),
        }
        self._begin()
        return {name: float(value) for name, value in row.items()}


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if values else 0.0
