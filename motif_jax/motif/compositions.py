"""Finds messages that a reward pays although one of their sentences is among what it likes least.

A game joins what happened in a step to one message: "You faint from lack of food.  You regain
consciousness." A reward that likes the second sentence may pay for the first, and each joined
message counts as a new one, so that its pay is not divided by how often its sentences were seen. An
agent learns to seek what it should avoid (Klissarov, D'Oro et al. 2024 call it misalignment by
composition).
"""

from __future__ import annotations

import numpy as np

from motif_jax.core.sentences import split_bytes
from motif_jax.motif.explanation import Composition, ExplainedReward
from motif_jax.play.messages import as_text

# The share of the dataset's distinct messages that count as what a reward likes least.
LEAST_LIKED = 0.25


def find_compositions(
    messages: np.ndarray, counts: np.ndarray, reward: ExplainedReward
) -> list[Composition]:
    """The paid messages with a sentence that is itself a message of the dataset, below most others;
    the most frequent ones first.

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
