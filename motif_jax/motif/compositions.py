"""Finds messages that a reward pays although one of their sentences is among what it likes least.

A game joins what happened in a step to one message: "You faint from lack of food.  You regain
consciousness." A reward that likes the second sentence may pay for the first, and each joined
message counts as a new one, so that its pay is not divided by how often its sentences were seen. An
agent learns to seek what it should avoid (Klissarov, D'Oro et al. 2024 call it misalignment by
composition).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from motif_jax.core.sentences import split
from motif_jax.motif.explanation import Composition, ExplainedReward

# The share of the dataset's distinct messages that count as what a reward likes least.
LEAST_LIKED = 0.25


def find_compositions(
    messages: Sequence[str],
    counts: np.ndarray,
    reward: ExplainedReward,
    rate_texts: Callable[[list[str]], np.ndarray],
) -> list[Composition]:
    """The paid messages with a sentence that alone is below most of the dataset's messages, the
    most frequent ones first.

    Args:
        messages: N distinct messages of a dataset.
        counts: int [N], the steps that show each.
        reward: the reward's values of the messages.
        rate_texts: the normalised rewards of M texts, float [M].
    """
    if not reward.rated.any():
        return []
    limit = float(np.quantile(reward.normalised[reward.rated], LEAST_LIKED))
    sentences_of = {}
    for index in np.flatnonzero(reward.pays).tolist():
        parts = split(messages[index])
        if len(parts) > 1:
            sentences_of[index] = parts
    distinct = list(
        dict.fromkeys(sentence for parts in sentences_of.values() for sentence in parts)
    )
    if not distinct:
        return []
    # Each sentence is rated once, whatever the number of its messages.
    value_of = dict(zip(distinct, rate_texts(distinct).tolist(), strict=True))

    compositions = []
    for index, parts in sentences_of.items():
        worst = min(parts, key=value_of.__getitem__)
        if value_of[worst] < limit:
            paid = float(reward.paid[index])
            compositions.append(
                Composition(messages[index], int(counts[index]), paid, worst, value_of[worst])
            )
    return sorted(compositions, key=lambda composition: -composition.steps)
