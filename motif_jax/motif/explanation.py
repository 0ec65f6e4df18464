"""Data of a page about rewards: models, messages and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class ExplainedReward(NamedTuple):
    """One reward model's values of N messages; NaN for a message without a value.

    `disagreement` [N] is the standard deviation of an ensemble's normalised rewards, `history`
    [E, N] the normalised rewards at the E `evaluations`, oldest first, `curve` their metrics, and
    `facts` has (label, value, note).
    """

    name: str
    raw: np.ndarray
    normalised: np.ndarray
    paid: np.ndarray
    threshold: float | None
    disagreement: np.ndarray | None
    history: np.ndarray
    evaluations: Sequence[int]
    curve: Sequence[dict[str, Any]]
    facts: Sequence[tuple[str, str, str]] = ()

    @property
    def rated(self) -> np.ndarray:
        return np.isfinite(self.normalised)

    @property
    def pays(self) -> np.ndarray:
        return self.rated & (self.paid != 0)

    def paid_share(self, counts: np.ndarray) -> float:
        """The share of the steps with a rated message that are paid; `counts` int [N], steps of
        each message.
        """
        return float(counts[self.pays].sum() / max(1, counts[self.rated].sum()))


class Composition(NamedTuple):
    """A message that is paid although one of its sentences, alone, is among what the reward likes
    least.
    """

    message: str
    steps: int  # of the dataset, that show it
    paid: float
    sentence: str
    sentence_reward: float  # normalised, of the sentence alone


class Explanation(NamedTuple):
    """Rewards of one or two models for a dataset's messages [N] with their `counts`, and for the
    user's texts (`typed`).

    `compositions` has a list for each reward.
    """

    messages: Sequence[str]
    counts: np.ndarray
    rewards: Sequence[ExplainedReward]
    texts: Sequence[str] = ()
    typed: Sequence[ExplainedReward] = ()
    source: str = ""
    text_counts: np.ndarray | Sequence[int] = ()
    compositions: Sequence[Sequence[Composition]] = ()


def occurrences_text(count: int) -> str:
    """How often the dataset has a text, in words; the reward of an unseen text is extrapolated."""
    return f"{count:,} times in the dataset" if count else "never in the dataset: a guess"


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation of two arrays [N] without pairs that have a NaN; NaN if an array
    has no two values.
    """
    from scipy.stats import spearmanr

    both = np.isfinite(first) & np.isfinite(second)
    if len(np.unique(first[both])) < 2 or len(np.unique(second[both])) < 2:
        return float("nan")
    return float(spearmanr(first[both], second[both]).statistic)
