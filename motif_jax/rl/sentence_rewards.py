"""Pays the sentences of a message apart, each divided by how often it was paid in the episode:
`config.reward.by=sentence`.

The published systems pay messages. A game joins sentences, and each new composition counts as a
text that was never seen, so that an agent is paid again and again for a sentence that it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from motif_jax.core.sentences import SentenceRows
from motif_jax.rl import count_discount

# Sentence -> how often it was paid in an episode.
Visits = MutableMapping[bytes, int]


def pay_sentences(
    sentences: Sequence[bytes], value_of: Mapping[bytes, float], visits: Visits, exponent: float
) -> list[float]:
    """What each sentence of a message is paid: g / N^exponent, N its visits in the episode so far,
    with this one.

    Adds to `visits`. Sentences that are paid nothing are not counted.

    Args:
      value_of: g of each sentence, normalised and thresholded.
    """
    amounts = []
    for sentence in sentences:
        value = value_of[sentence]
        if value:
            visits[sentence] = visits.get(sentence, 0) + 1
            value = count_discount.discount(value, visits[sentence], exponent)
        amounts.append(value)
    return amounts


def rate_sentences(
    divided: SentenceRows, values: np.ndarray
) -> tuple[list[list[bytes]], dict[bytes, float]]:
    """The sentences of each of N messages, and g of each distinct sentence.

    Args:
      values: g of `divided.sentences`, float [M].
    """
    sentences = [row.tobytes().rstrip(b"\0") for row in divided.sentences]
    of_message = [[sentences[index] for index in indices] for indices in divided.of_message]
    value_of = dict(zip(sentences, np.asarray(values, np.float32).tolist(), strict=True))
    return of_message, value_of
