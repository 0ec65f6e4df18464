"""Messages that a reward pays although one of their sentences is among what it likes least."""

from __future__ import annotations

import numpy as np

from motif_jax.core import text_bytes
from motif_jax.motif.compositions import find_compositions
from motif_jax.motif.explanation import ExplainedReward

FAINT = "You faint from lack of food.  You regain consciousness."
KILL = "You kill the newt!  You see here a newt corpse."
MESSAGES = [
    FAINT,
    KILL,
    "",
    "You regain consciousness.",
    "You bump into a wall.",
    "You hear a door open.",
]
COUNTS = np.array([3, 9, 500, 2, 40, 7])
VALUE_ALONE = {
    "You faint from lack of food.": -2.0,
    "You regain consciousness.": 1.5,
    "You kill the newt!": 1.0,
    "You see here a newt corpse.": 0.0,
}


def rows_of(texts: list[str]) -> np.ndarray:
    return text_bytes.padded_rows(texts, 256)


ROWS = rows_of(MESSAGES)


def reward_of(normalised: list[float], threshold: float = 0.5) -> ExplainedReward:
    values = np.array(normalised)
    paid = np.where(values > threshold, values, 0.0)
    return ExplainedReward("starving", values, values, paid, threshold, None, values[None], [0], [])


def rate_alone(rows: np.ndarray) -> np.ndarray:
    texts = [row.tobytes().rstrip(b"\0").decode() for row in rows]
    return np.array([VALUE_ALONE.get(text, 0.0) for text in texts])


def test_a_paid_message_with_a_disliked_sentence_is_named() -> None:
    reward = reward_of([1.0, 1.2, -0.5, 1.5, -1.0, 0.1])

    compositions = find_compositions(ROWS, COUNTS, reward, rate_alone)

    assert [composition._asdict() for composition in compositions] == [
        {
            "message": FAINT,
            "steps": 3,
            "paid": 1.0,
            "sentence": "You faint from lack of food.",
            "sentence_reward": -2.0,
        }
    ]


def test_sentences_on_lines_of_their_own_are_asked_alone() -> None:
    lines = "You faint from lack of food.\nYou regain consciousness."
    reward = reward_of([1.0, -0.5])

    (composition,) = find_compositions(rows_of([lines, ""]), np.array([3, 500]), reward, rate_alone)

    assert composition.sentence == "You faint from lack of food."
    assert composition.message == lines.replace("\n", "\\x0a")


def test_the_most_frequent_message_comes_first() -> None:
    def dislike_all(rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), -5.0)

    compositions = find_compositions(
        ROWS, COUNTS, reward_of([1.0, 1.2, -0.5, 1.5, -1.0, 0.1]), dislike_all
    )

    assert [composition.message for composition in compositions] == [KILL, FAINT]


def test_messages_that_are_not_paid_are_not_named() -> None:
    reward = reward_of([0.4, 1.2, -0.5, 1.5, -1.0, 0.1])
    assert find_compositions(ROWS, COUNTS, reward, rate_alone) == []


def test_without_joined_messages_no_text_is_rated() -> None:
    def refuse(rows: np.ndarray) -> np.ndarray:
        raise AssertionError(rows)

    reward = reward_of([1.5, -1.0])
    assert (
        find_compositions(
            rows_of(["You regain consciousness.", ""]), np.array([2, 500]), reward, refuse
        )
        == []
    )


def test_a_reward_that_rates_no_message_has_none() -> None:
    reward = reward_of([np.nan, np.nan])
    assert find_compositions(ROWS[:2], COUNTS[:2], reward, rate_alone) == []
