"""Labels from answers, merged labels, and agreement between annotators; numpy only."""

from __future__ import annotations

import numpy as np

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN

# Closer probabilities are equal, so that the mean of two opposite answers is a draw.
_EQUAL = 1e-6
# Label of a pair -> the same judgement of the reversed pair.
TURNED = np.array([SECOND, FIRST, TIE, UNKNOWN], np.int8)


def one_hot(labels: np.ndarray) -> np.ndarray:
    """Labels int [...] of pairs to probabilities float32 [..., 3]; NaN where unknown."""
    return np.array([PAIR.certain(label) for label in PAIR.labels], np.float32)[np.asarray(labels)]


def mean_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Mean over the first axis of float [answers, pairs, 3], without NaN; NaN if all are."""
    known = ~np.isnan(probabilities[..., 0])
    total = np.where(known[..., None], probabilities, 0).sum(0)
    count = known.sum(0)[..., None]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)


def most_probable(probabilities: np.ndarray) -> np.ndarray:
    """Most probable verdicts, int8 [pairs], of probabilities [pairs, 3]; a draw is a tie, NaN is unknown."""
    with np.errstate(invalid="ignore"):
        others = np.sort(probabilities, -1)[:, -2]
        won = probabilities.max(-1) > others + _EQUAL
    labels = np.where(won, probabilities.argmax(-1), TIE).astype(np.int8)
    labels[np.isnan(probabilities).any(-1)] = UNKNOWN
    return labels


def confusion(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Counts int64 [3, 3] of two annotators over the pairs that both know."""
    known = (first != UNKNOWN) & (second != UNKNOWN)
    counts = np.zeros((3, 3), np.int64)
    np.add.at(counts, (first[known], second[known]), 1)
    return counts


def cohen_kappa(counts: np.ndarray) -> float:
    """Cohen's kappa (1960) of a square table of counts: agreement above chance over the most possible above it.

    NaN without pairs, or where both annotators gave one and the same verdict to every pair.
    """
    total = counts.sum()
    if total == 0:
        return float("nan")
    share = counts / total
    observed = float(np.trace(share))
    expected = float(share.sum(1) @ share.sum(0))
    return float("nan") if expected >= 1 - 1e-12 else (observed - expected) / (1 - expected)


def position_bias(given: np.ndarray, reverse: np.ndarray) -> dict[str, float]:
    """How much verdicts int [pairs] of pairs and of the reversed ones follow the order; FIRST is the caption shown first.

    Returns the number of `pairs` known in both orders; `consistent`, the share with the same winner (or a tie) in both;
    `first_share` of FIRST among FIRST and SECOND, 0.5 without bias.
    """
    known = (given != UNKNOWN) & (reverse != UNKNOWN)
    given, reverse = given[known], reverse[known]
    said = np.concatenate([given, reverse])
    firsts, decided = int((said == FIRST).sum()), int(np.isin(said, (FIRST, SECOND)).sum())
    return {
        "pairs": int(known.sum()),
        "consistent": float((given == TURNED[reverse]).mean()) if known.any() else float("nan"),
        "first_share": firsts / decided if decided else float("nan"),
    }


def counts(labels: np.ndarray) -> dict[str, int]:
    """The number of pairs with each label, by its name."""
    return {name: int((labels == label).sum()) for label, name in PAIR.labels.items()}
