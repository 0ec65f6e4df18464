"""Messages that a reward pays although one of their sentences is among what it likes least."""

from __future__ import annotations

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.motif.explanation import ExplainedReward, find_compositions

FAINT = "You faint from lack of food.  You regain consciousness."
KILL = "You kill the newt!  You see here a newt corpse."
MESSAGES = [
    FAINT,
    KILL,
    "",
    "You regain consciousness.",
    "You bump into a wall.",
    "You hear a door open.",
    "You faint from lack of food. ",
    "You see here a newt corpse.",
]
COUNTS = np.array([3, 9, 500, 2, 40, 7, 1, 12])
# "You kill the newt!" never occurs alone.
VALUES = [1.0, 1.2, -0.5, 1.5, -1.0, 0.1, -2.0, 0.0]


def rows_of(texts: list[str]) -> np.ndarray:
    return text_bytes.padded_rows(texts, 256)


ROWS = rows_of(MESSAGES)


def reward_of(normalised: list[float], threshold: float = 0.5) -> ExplainedReward:
    values = np.array(normalised)
    paid = np.where(values > threshold, values, 0.0)
    return ExplainedReward("starving", values, values, paid, threshold, None, values[None], [0], [])


def test_a_paid_message_with_a_disliked_sentence_is_named() -> None:
    compositions = find_compositions(ROWS, COUNTS, reward_of(VALUES))

    assert [composition._asdict() for composition in compositions] == [
        {
            "message": FAINT,
            "steps": 3,
            "paid": 1.0,
            "sentence": "You faint from lack of food.",
            "sentence_reward": -2.0,
        }
    ]


def test_sentences_on_lines_of_their_own_are_found_alone() -> None:
    lines = "You faint from lack of food.\nYou regain consciousness."
    rows = rows_of([lines, "", "You faint from lack of food."])

    (composition,) = find_compositions(rows, np.array([3, 500, 2]), reward_of([1.0, -0.5, -2.0]))

    assert composition.sentence == "You faint from lack of food."
    assert composition.message == lines.replace("\n", "\\x0a")


def test_a_sentence_that_never_occurs_alone_is_not_named() -> None:
    """Its reward would be the network's guess: captions of two halves have only such sentences."""
    captions = [
        "You fall fast. You tilt left.",
        "You fall slowly. You stand upright.",
        "You crash!",
    ]
    reward = reward_of([1.0, 1.2, -3.0])
    assert find_compositions(rows_of(captions), np.array([5, 4, 1]), reward) == []


def test_the_most_frequent_message_comes_first() -> None:
    disliked = [1.0, 1.2, -0.5, 1.5, -1.0, 0.1, -5.0, -5.0]

    compositions = find_compositions(ROWS, COUNTS, reward_of(disliked))

    assert [composition.message for composition in compositions] == [KILL, FAINT]


def test_messages_that_are_not_paid_are_not_named() -> None:
    assert find_compositions(ROWS, COUNTS, reward_of([0.4, *VALUES[1:]])) == []


def test_a_reward_that_rates_no_message_has_none() -> None:
    reward = reward_of([np.nan, np.nan])
    assert find_compositions(ROWS[:2], COUNTS[:2], reward) == []
