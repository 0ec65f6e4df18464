"""Labels from answers, merged labels, and agreement between annotators; numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation.questions import QuestionList
from motif_jax.motif.annotation.store import StoredAnswer

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


class PairLabels(NamedTuple):
    """Labels int8 [pairs], probabilities float32 [pairs, 3], and the position bias if both orders
    were asked.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    position_bias: dict[str, float] | None


def labels_of_pairs(questions: QuestionList, answers: Sequence[StoredAnswer | None]) -> PairLabels:
    """Labels of the pairs from the answers to all questions; both orders of a pair are averaged."""
    # One row more than there are questions: the tie of equal captions, which `question_indices`
    # point to with -1.
    question_labels = np.array(
        [UNKNOWN if a is None else a.label for a in answers] + [TIE], np.int8
    )
    question_probabilities = one_hot(question_labels)
    for index, answer in enumerate(answers):
        if answer is not None and answer.probabilities is not None and answer.label != UNKNOWN:
            question_probabilities[index] = answer.probabilities

    # [pairs, orders] and [pairs, orders, 3]: each pair's answers, then turned to the pair's own
    # order.
    shown_labels = question_labels[questions.question_indices]
    labels = np.where(questions.swapped, TURNED[shown_labels], shown_labels)
    probabilities = question_probabilities[questions.question_indices]
    turned = probabilities[..., TURNED[:3]]
    probabilities = np.where(questions.swapped[..., None], turned, probabilities)

    if questions.question_indices.shape[1] == 1:
        return PairLabels(labels[:, 0], probabilities[:, 0].astype(np.float32), None)
    # To [orders, pairs, 3].
    mean = mean_probabilities(np.moveaxis(probabilities, 1, 0))
    # Equal captions were not asked about, and say nothing of the judge.
    was_asked = questions.question_indices[:, 0] >= 0
    bias = position_bias(shown_labels[was_asked, 0], shown_labels[was_asked, 1])
    return PairLabels(agreed(labels.T, mean), mean, bias)
