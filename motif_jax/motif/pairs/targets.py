"""Targets of a reward model from one or several annotations of a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.motif.pairs.dataset import PairsDataset, map_array


@dataclasses.dataclass(frozen=True)
class PairTargets:
    """Targets of all pairs of a dataset."""

    labels: np.ndarray  # int8 [pairs], 0 first, 1 second, 2 tie, 3 unknown to all judges
    targets: np.ndarray  # float32 [pairs, 2], probabilities that the first and the second is better, sum 1
    unsmoothed: np.ndarray  # float32 [pairs, 2], targets before label smoothing, for metrics
    weights: np.ndarray  # float32 [pairs], weight in the loss; 0 for unknown and dropped pairs

    @property
    def known(self) -> np.ndarray:
        """Ascending indices int64 of the pairs with a known label, with ties."""
        return np.flatnonzero(self.labels != UNKNOWN)


def probabilities_path(dataset: PairsDataset, name: str) -> Path:
    """File of an annotation's probabilities (first, second, tie); may not exist."""
    return dataset.folder / "annotations" / name / "probabilities.npy"


def read_probabilities(dataset: PairsDataset, name: str) -> np.ndarray:
    """Probabilities float32 [pairs, 3] (first, second, tie) of annotation `name`, NaN where unknown; UserError for a wrong file."""
    path = probabilities_path(dataset, name)
    if not path.exists():
        said = f"annotation {name} has labels only, and soft labels need probabilities"
        raise UserError(f"{path} is missing: {said}")
    probabilities = map_array(path)
    if probabilities.dtype.kind != "f" or probabilities.shape != (dataset.num_pairs, 3):
        raise UserError(
            f"{path}: {probabilities.dtype}, shape {probabilities.shape}, expected ({dataset.num_pairs}, 3) of floating "
            "numbers"
        )
    finite = probabilities[np.isfinite(probabilities).all(axis=1)]
    if finite.size and (finite.min() < -1e-3 or np.abs(finite.sum(axis=1) - 1).max() > 1e-2):
        raise UserError(f"{path}: rows must be probabilities that sum to 1")
    return probabilities.astype(np.float32)


def hard_targets(labels: np.ndarray) -> np.ndarray:
    """Targets float32 [N, 2] of labels int [N]: (1, 0), (0, 1), and (1/2, 1/2) for ties and unknown ones."""
    return np.array([[1, 0], [0, 1], [0.5, 0.5], [0.5, 0.5]], np.float32)[labels]


def soft_targets(probabilities: np.ndarray) -> np.ndarray:
    """Targets float32 [N, 2] of probabilities [N, 3]: half of a tie's probability goes to each side."""
    return (probabilities[:, :2] + probabilities[:, 2:] / 2).astype(np.float32)


def read_targets(
    dataset: PairsDataset,
    names: Sequence[str],
    soft: bool = False,
    smoothing: float = 0.0,
    confidence: str = "none",
    ties: str = "half",
    annotator_weights: Sequence[float] = (),
) -> PairTargets:
    """Averages annotations to targets, over the judges that label a pair.

    Only accuracies use the label: the side that the average prefers, or the label of a single judge.

    Args:
      names: annotations to use, at least one.
      soft: whether to use the judges' probabilities instead of their labels.
      smoothing: share in [0, 1] of each target that moves to one half each.
      confidence: 'probability' weights each judge by the probability of its most likely answer.
      ties: 'half' trains towards equal rewards, 'drop' leaves ties out of the loss.
      annotator_weights: weight of each judge; equal by default.

    Raises UserError: an annotation or its probabilities are missing or damaged, or nothing is labelled.
    """
    total, says = np.zeros((2, dataset.num_pairs))
    targets = np.zeros((dataset.num_pairs, 2))
    for name, weight in zip(names, annotator_weights or [1.0] * len(names), strict=True):
        labels = dataset.preference(name)
        known = labels != UNKNOWN
        votes, sure = hard_targets(labels), np.ones(dataset.num_pairs)
        if soft or confidence == "probability":
            probabilities = read_probabilities(dataset, name)
            there = np.isfinite(probabilities).all(axis=1)
            if soft:
                votes = np.where(there[:, None], soft_targets(np.nan_to_num(probabilities)), votes)
            if confidence == "probability":
                sure = np.where(there, np.nan_to_num(probabilities).max(axis=1), 1.0)
        says += known * weight
        total += known * weight * sure
        targets += (known * weight * sure)[:, None] * votes
    if not (total > 0).any():
        raise UserError(f"{dataset.folder}: no pair has a known label in {', '.join(names)}")
    targets = np.where(total[:, None] > 0, targets / np.maximum(total, 1e-12)[:, None], 0.5)
    labels = dataset.preference(names[0]) if len(names) == 1 else _labels_of(targets, total > 0)
    weights = np.where(says > 0, total / np.maximum(says, 1e-12), 0.0)
    if ties == "drop":
        weights = np.where(labels == TIE, 0.0, weights)
    smoothed = (1 - smoothing) * targets + smoothing / 2
    found = (array.astype(np.float32) for array in (smoothed, targets, weights))
    return PairTargets(labels.astype(np.int8), *found)


def _labels_of(targets: np.ndarray, known: np.ndarray) -> np.ndarray:
    difference = targets[:, 0] - targets[:, 1]
    labels = np.where(np.abs(difference) < 1e-6, TIE, np.where(difference > 0, FIRST, SECOND))
    return np.where(known, labels, UNKNOWN)
