"""Finds messages that a reward pays although one of their sentences is among what it likes least.

A game joins what happened in a step to one message: "You faint from lack of food.  You regain
consciousness." A reward that likes the second sentence may pay for the first, and each joined
message counts as a new one, so that its pay is not divided by how often its sentences were seen. An
agent learns to seek what it should avoid (Klissarov, D'Oro et al. 2024 call it misalignment by
composition).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from motif_jax.core.sentences import split_rows
from motif_jax.motif.explanation import Composition, ExplainedReward
from motif_jax.play.messages import as_text

# The share of the dataset's distinct messages that count as what a reward likes least.
LEAST_LIKED = 0.25


def find_compositions(
    messages: np.ndarray,
    counts: np.ndarray,
    reward: ExplainedReward,
    rate_rows: Callable[[np.ndarray], np.ndarray],
) -> list[Composition]:
    """The paid messages with a sentence that alone is below most of the dataset's messages, the
    most frequent ones first.

    Messages are divided as `reward.by=sentence` does: their bytes, before any is escaped for a
    page.

    Args:
        messages: uint8 [N, L], N distinct messages of a dataset.
        counts: int [N], the steps that show each.
        reward: the reward's values of the messages.
        rate_rows: the normalised rewards of M texts uint8 [M, L], float [M].
    """
    if not reward.rated.any():
        return []
    limit = float(np.quantile(reward.normalised[reward.rated], LEAST_LIKED))
    paid = np.flatnonzero(reward.pays)
    rows = split_rows(messages[paid])
    if all(len(parts) == 1 for parts in rows.of_message):
        return []
    # Each sentence is rated once, whatever the number of its messages.
    values = rate_rows(rows.sentences)

    compositions = []
    for index, parts in zip(paid.tolist(), rows.of_message, strict=True):
        worst = min(parts, key=values.__getitem__)
        if len(parts) > 1 and values[worst] < limit:
            composition = Composition(
                message=as_text(messages[index]),
                steps=int(counts[index]),
                paid=float(reward.paid[index]),
                sentence=as_text(rows.sentences[worst]),
                sentence_reward=float(values[worst]),
            )
            compositions.append(composition)
    return sorted(compositions, key=lambda composition: -composition.steps)
