"""Sentences are paid and counted apart: in a training, in the games that are rated, and in
films.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.episode import PlayedEpisode
from motif_jax.play.ratings import EpisodeRater
from motif_jax.rewards import RewardKind, Values
from motif_jax.rl import intrinsic
from motif_jax.rl.config import AgentReward
from motif_jax.rl.count_discount import pay_sentences
from motif_jax.rl.reward_keys import SENTENCE
from motif_jax.rl.reward_lookup import Columns, RewardLookup, SentenceLookup

SPEC: Any = registry.spec("Recall-v0")
WIDTH = 64
HIT = "You hit."
WAKE = "You wake."
FAINT = "You faint."
VALUE_OF = {HIT: 4.0, WAKE: 6.0}


class TwoSentences(RewardKind):
    """Pays for HIT and WAKE."""

    def lookup(self, texts: np.ndarray) -> Values:
        words = [row.tobytes().rstrip(b"\0").decode() for row in texts]
        return Values(np.array([VALUE_OF.get(word, 0.0) for word in words], np.float32), 5)


def texts_of(messages: list[list[str]]) -> np.ndarray:
    """Messages by row and column: uint8 [T + 1, B, WIDTH]."""
    data = b"".join(message.encode().ljust(WIDTH, b"\0") for row in messages for message in row)
    return np.frombuffer(data, np.uint8).reshape(len(messages), len(messages[0]), WIDTH)


def pay(
    lookup: RewardLookup,
    messages: list[list[str]],
    episode: list[list[int]] | None = None,
    last: list[list[int]] | None = None,
    envs: tuple[int, ...] = (),
    counts: list[list[int]] | None = None,
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """What a batch with these rows and columns is paid; T + 1 rows of messages, T of episodes."""
    columns = len(messages[0])
    steps = len(messages) - 1
    is_last = np.array(last or np.zeros((steps + 1, columns)), bool)
    is_first = np.concatenate([np.zeros_like(is_last[:1]), is_last[:-1]])
    observation = {
        SPEC.text_field: texts_of(messages),
        SPEC.count_field: np.array(counts or np.ones((steps + 1, columns)), np.int32),
    }
    return lookup.pay(
        observation,
        Columns(
            np.array(envs or range(columns)),
            np.array(episode or np.zeros((steps, columns)), int),
            is_first,
            is_last,
        ),
    )


def sentence_lookup(
    exponent: float = 1.0, last_text: bool = True, pay: str = "read"
) -> SentenceLookup:
    spec = dataclasses.replace(SPEC, last_text=last_text)
    return SentenceLookup(spec, TwoSentences(), pay, exponent, Meters(), 0)


def test_each_sentence_is_divided_by_its_own_visits() -> None:
    visits: dict[bytes, int] = {}
    value_of = {b"a": 6.0, b"b": 1.0, b"c": 0.0}

    first = pay_sentences([b"a", b"c"], value_of, visits, 1.0)
    second = pay_sentences([b"b", b"a", b"a"], value_of, visits, 1.0)

    assert (first, second) == ([6, 0], [1, 3, 2])
    assert visits == {b"a": 3, b"b": 1}


def test_a_known_sentence_in_a_new_composition_is_not_new() -> None:
    messages = [[f"{FAINT}  {WAKE}"], [f"{HIT}  {WAKE}"], [WAKE], [""]]

    intrinsic, _, version = pay(sentence_lookup(), messages)

    assert intrinsic[:, 0].tolist() == [6, 4 + 6 / 2, 6 / 3]
    assert version == 5


def test_a_new_episode_counts_anew() -> None:
    messages = [[WAKE], [WAKE], [WAKE], [WAKE], [""]]

    intrinsic, of_last, _ = pay(
        sentence_lookup(), messages, episode=[[3], [3], [4], [4]], last=[[0], [0], [1], [0], [0]]
    )

    assert intrinsic[[0, 1, 3], 0].tolist() == [6, 3, 6]
    assert of_last is not None
    assert of_last[:, 0].tolist() == [0, 2, 0, 0], (
        "the final observation belongs to the episode before"
    )


def test_a_final_text_without_pay_is_left_out() -> None:
    intrinsic, of_last, _ = pay(
        sentence_lookup(last_text=False),
        [[WAKE], [WAKE], [WAKE]],
        episode=[[3], [4]],
        last=[[0], [1], [0]],
    )

    assert of_last is None
    assert intrinsic[0, 0] == 6


def test_visits_continue_in_an_environments_next_batch_and_column() -> None:
    lookup = sentence_lookup()

    first, _, _ = pay(lookup, [[WAKE, WAKE], [WAKE, WAKE]], envs=(9, 9))
    second, _, _ = pay(lookup, [[WAKE, WAKE], [WAKE, WAKE]], envs=(9, 2))

    assert first.tolist() == [[6, 3]]
    assert second.tolist() == [[2, 6]]


def test_sentences_are_paid_to_the_action_that_led_to_them() -> None:
    """Each once, also where two batches share a row."""
    lookup = sentence_lookup(pay="caused")

    _, first, _ = pay(lookup, [[WAKE], [WAKE], [HIT]], episode=[[3], [3]])
    _, second, _ = pay(lookup, [[HIT], [WAKE], [WAKE]], episode=[[3], [3]], last=[[0], [1], [0]])

    assert first is not None
    assert second is not None
    assert first[:, 0].tolist() == [6, 4]
    assert second[:, 0].tolist() == [3, 0]


def test_messages_of_one_sentence_are_paid_as_by_message() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.choice([HIT, WAKE, FAINT, ""], (30, 4))
    messages = drawn.tolist()
    counts = [
        [(drawn[: row + 1, column] == drawn[row, column]).sum() for column in range(4)]
        for row in range(30)
    ]

    by_sentence, _, _ = pay(sentence_lookup(exponent=2.0), messages)
    message_lookup = RewardLookup(SPEC, TwoSentences(), "read", 2.0, Meters(), 0)
    by_message, _, _ = pay(message_lookup, messages)

    np.testing.assert_allclose(by_sentence, by_message / np.array(counts)[:-1] ** 2.0, rtol=1e-6)


def test_the_log_of_paid_texts_has_sentences() -> None:
    lookup = sentence_lookup()

    pay(lookup, [[f"{HIT}  {WAKE}"], [f"{FAINT}  {WAKE}"], [""]])
    row = lookup.paid_texts.take(2)

    assert row.total == 13
    assert [tuple(text) for text in row.texts] == [(WAKE, 2, 9.0), (HIT, 1, 4.0)]


def test_games_are_rated_as_they_were_paid() -> None:
    messages = [f"{HIT}  {WAKE}", WAKE, f"{FAINT}  {WAKE}", f"{HIT}  {WAKE}", ""]
    intrinsic, _, _ = pay(sentence_lookup(), [[message] for message in [*messages, ""]])
    distinct = list(dict.fromkeys(messages))
    record = PlayedEpisode(
        index=0,
        seed=0,
        actions=np.zeros(len(messages), np.int32),
        rewards=np.zeros(len(messages), np.float32),
        end=1,
        info={},
        texts=texts_of([distinct])[0],
        text_index=np.array([distinct.index(message) for message in messages]),
        text_count=np.ones(len(messages), np.int32),
    )

    rated = EpisodeRater(lambda texts: TwoSentences().lookup(texts).values, 1.0, by=SENTENCE).rate(
        record
    )

    np.testing.assert_allclose(rated.discounted, intrinsic[:, 0])
    assert rated.uncounted.tolist() == [10, 6, 6, 10, 0]


def test_a_reward_that_is_learned_meanwhile_pays_messages() -> None:
    reward = AgentReward(kind="retrieval", by=SENTENCE)

    with pytest.raises(UserError, match=r"reward\.by='sentence'"):
        intrinsic.check(reward)
