"""The count discount of intrinsic rewards, of messages or of their sentences, free of jax:
training, wrappers, evaluations and films call it.

Source: Klissarov, D'Oro et al. 2023, "Motif", section 3, equation 2. The published systems pay
messages. A game joins sentences, and each new composition counts as a text that was never seen, so
that an agent is paid again and again for a sentence that it likes: `config.reward.by=sentence` pays
the sentences of a message apart, each divided by how often it was paid in the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from motif_jax.core.sentences import SentenceRows

# Sentence -> how often it was paid in an episode.
Visits = MutableMapping[bytes, int]


def discount(reward: Any, visits: Any, exponent: float) -> Any:
    """g / N^exponent, with g the reward for a text and N its visits in the episode so far, the
    present one included.

    Args:
      reward: g, a number, or an array of numpy or jax of any shape.
      visits: N, at least 1: a number, or an array of the shape of `reward`. An array that is not of
        the type of `reward` may widen the quotient.
      exponent: 0 leaves counts out; the published one is 3.

    Returns:
      A number, or an array of the shape of `reward`.
    """
    return reward / visits**exponent


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
            value = discount(value, visits[sentence], exponent)
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
