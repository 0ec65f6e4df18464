"""Labels from answers, merged labels, and agreement between annotators; numpy only."""

from __future__ import annotations

import numpy as np

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN

# Probabilities that differ by less are equal: the mean of two opposite answers is a draw in spite
# of rounding.
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
    """Most probable verdicts, int8 [pairs], of probabilities [pairs, 3]; a draw is a tie, NaN is
    unknown.
    """
    # Rows of NaN, whose comparisons are false, become UNKNOWN below.
    with np.errstate(invalid="ignore"):
        second_largest = np.sort(probabilities, -1)[:, -2]
        has_winner = probabilities.max(-1) > second_largest + _EQUAL
    labels = np.where(has_winner, probabilities.argmax(-1), TIE).astype(np.int8)
    labels[np.isnan(probabilities).any(-1)] = UNKNOWN
    return labels


def agreed(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Labels int8 [pairs]: the one that all known answers to a pair give; where they differ, the
    most probable verdict of their mean.

    UNKNOWN where no answer is known. An annotator may call a tie what is nearly one, although its
    probabilities lean to a side.
    """
    known = labels != UNKNOWN
    least = np.where(known, labels, np.iinfo(np.int8).max).min(axis=0)
    greatest = np.where(known, labels, np.iinfo(np.int8).min).max(axis=0)
    # They also differ where nothing is known, and the mean's NaN then gives UNKNOWN.
    return np.where(least == greatest, least, most_probable(probabilities)).astype(np.int8)


def confusion(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Counts int64 [3, 3] of two annotators over the pairs that both know."""
    known = (first != UNKNOWN) & (second != UNKNOWN)
    counts = np.zeros((3, 3), np.int64)
    np.add.at(counts, (first[known], second[known]), 1)
    return counts


def cohen_kappa(counts: np.ndarray) -> float:
    """Cohen's kappa (1960) of a square table of counts: (observed - expected) / (1 - expected),
    shares of agreement.

    `expected` is the agreement of two annotators that draw by chance from their own shares of
    verdicts. NaN without pairs, or where both annotators gave one and the same verdict to every
    pair.
    """
    total = counts.sum()
    if total == 0:
        return float("nan")
    share = counts / total
    observed = float(np.trace(share))
    expected = float(share.sum(1) @ share.sum(0))
    if expected >= 1 - 1e-12:
        return float("nan")
    return (observed - expected) / (1 - expected)


def position_bias(forward: np.ndarray, reverse: np.ndarray) -> dict[str, float]:
    """How much verdicts int [pairs] follow the order of a pair, from both orders; FIRST is the
    caption that is shown first.

    Returns the number of `pairs` known in both orders; `consistent`, the share with the same winner
    (or a tie) in both; `first_share` of FIRST among FIRST and SECOND, 0.5 without bias. Shares of
    nothing are NaN.
    """
    known = (forward != UNKNOWN) & (reverse != UNKNOWN)
    forward = forward[known]
    reverse = reverse[known]
    both = np.concatenate([forward, reverse])
    num_first = int((both == FIRST).sum())
    num_decided = int(np.isin(both, (FIRST, SECOND)).sum())
    return {
        "pairs": int(known.sum()),
        "consistent": float((forward == TURNED[reverse]).mean()) if known.any() else float("nan"),
        "first_share": num_first / num_decided if num_decided else float("nan"),
    }


def counts(labels: np.ndarray) -> dict[str, int]:
    """The number of pairs with each label, by its name."""
    return {name: int((labels == label).sum()) for label, name in PAIR.labels.items()}
