"""Data of a page about rewards: models, messages and their numbers, and the messages that a reward
pays although one of their sentences is among what it likes least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.sentences import split_bytes
from motif_jax.play.messages import as_text

# The share of the dataset's distinct messages that count as what a reward likes least.
LEAST_LIKED = 0.25


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


def find_compositions(
    messages: np.ndarray, counts: np.ndarray, reward: ExplainedReward
) -> list[Composition]:
    """The paid messages with a sentence that is itself a message of the dataset, below most others;
    the most frequent ones first.

    A game joins what happened in a step to one message: "You faint from lack of food.  You regain
    consciousness." A reward that likes the second sentence may pay for the first, and each joined
    message counts as a new one, so that its pay is not divided by how often its sentences were
    seen. An agent learns to seek what it should avoid (Klissarov, D'Oro et al. 2024 call it
    misalignment by composition).

    What the dataset never shows alone is left out: no label says anything of it, and the reward of
    such a half of a message is a guess. Messages are divided as `reward.by=sentence` does: their
    bytes, before any is escaped for a page.

    Args:
        messages: uint8 [N, L], N distinct messages of a dataset.
        counts: int [N], the steps that show each.
        reward: the reward's values of the messages.
    """
    rated = np.flatnonzero(reward.rated).tolist()
    if not rated:
        return []
    limit = float(np.quantile(reward.normalised[rated], LEAST_LIKED))
    texts = [message.tobytes().rstrip(b"\0").strip() for message in messages]
    value_alone = {texts[index]: float(reward.normalised[index]) for index in rated}

    compositions = []
    for index in np.flatnonzero(reward.pays).tolist():
        sentences = split_bytes(texts[index])
        if len(sentences) == 1:
            continue
        known = [sentence for sentence in sentences if sentence in value_alone]
        worst = min(known, key=value_alone.__getitem__, default=None)
        if worst is None or value_alone[worst] >= limit:
            continue
        composition = Composition(
            message=as_text(messages[index]),
            steps=int(counts[index]),
            paid=float(reward.paid[index]),
            sentence=as_text(worst),
            sentence_reward=value_alone[worst],
        )
        compositions.append(composition)
    return sorted(compositions, key=lambda composition: -composition.steps)
