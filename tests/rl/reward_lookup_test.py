"""The intrinsic reward of a batch's texts, with and without the final observations' ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.envs import registry
from motif_jax.rewards import BatchMessages, RewardKind, Values
from motif_jax.rl.reward_lookup import Columns, IntrinsicReturn, ReturnSums, RewardLookup
from tests.rl.runs import column

SPEC = registry.spec("Recall-v0")
# Texts of five rows: an episode ends with "d", and the next begins with "a".
TEXTS = "abbda"
COUNTS = [1, 1, 2, 1, 1]
LAST = np.array([0, 0, 0, 1, 0], bool)[:, None]


class Alphabet(RewardKind):
    """Pays a 1, b 2, ...; keeps what it observes."""

    def __init__(self) -> None:
        self.observed: list[BatchMessages] = []

    def lookup(self, texts: np.ndarray) -> Values:
        return Values(texts[:, 0].astype(np.float32) - 96, 3)

    def observe(self, batch: BatchMessages) -> None:
        self.observed.append(batch)


def columns_of(last: np.ndarray) -> Columns:
    """One environment's rows, with the final observations `last`."""
    first = np.concatenate([np.zeros_like(last[:1]), last[:-1]])
    return Columns(np.array([7]), np.zeros((len(last) - 1, 1), int), first, last)


def paid(last_text: bool, pay: str = "read") -> tuple[np.ndarray, np.ndarray | None, BatchMessages]:
    spec: Any = dataclasses.replace(SPEC, last_text=last_text)
    reward = Alphabet()
    texts = np.zeros((5, 1, *spec.observation[spec.text_field].shape), np.uint8)
    texts[:, 0, 0] = list(TEXTS.encode())
    observation = {spec.text_field: texts, spec.count_field: np.array(COUNTS, np.int32)[:, None]}
    lookup = RewardLookup(spec, reward, pay, 1.0, Meters(), 0)
    intrinsic, of_next, version = lookup.pay(observation, columns_of(LAST))
    assert version == 3
    return intrinsic[:, 0], None if of_next is None else of_next[:, 0], reward.observed[0]


def test_a_final_text_is_paid_to_its_action() -> None:
    intrinsic, of_last, observed = paid(last_text=True)
    np.testing.assert_array_equal(intrinsic[:3], [1, 2, 2])
    np.testing.assert_array_equal(of_last, [0, 0, 4, 0])
    assert observed.steps == 3
    assert bytes(sorted(observed.texts[:, 0])) == b"abd", "final texts are observed, too"
    assert observed.counts.sum() == 4


def test_a_final_text_is_unpaid_as_in_the_published_systems() -> None:
    _, of_last, observed = paid(last_text=False)
    assert of_last is None
    assert bytes(sorted(observed.texts[:, 0])) == b"ab"


@pytest.mark.parametrize(("last_text", "final"), [(True, 4), (False, 0)])
def test_a_text_is_paid_to_the_action_that_led_to_it(last_text: bool, final: int) -> None:
    """Neither the first text nor the next episode's, to which no action led."""
    intrinsic, of_next, observed = paid(last_text, pay="caused")
    np.testing.assert_array_equal(intrinsic, 0)
    np.testing.assert_array_equal(of_next, [2, 2, final, 0])
    assert observed.steps == 3
    assert observed.counts.sum() == 2 + last_text


def test_the_next_batchs_first_text_is_paid_in_this_one() -> None:
    """Without final observations the row after an episode's last is the next one's first."""
    spec: Any = SPEC
    texts = np.zeros((4, 1, *spec.observation[spec.text_field].shape), np.uint8)
    texts[:, 0, 0] = list(b"abdc")
    observation = {spec.text_field: texts, spec.count_field: np.ones((4, 1), np.int32)}
    first = np.array([1, 0, 1, 0], bool)[:, None]
    columns = Columns(np.array([7]), np.array([[0], [0], [1]]), first, np.zeros_like(first))
    lookup = RewardLookup(spec, Alphabet(), "caused", 1.0, Meters(), 0)

    _, of_next, _ = lookup.pay(observation, columns)

    assert of_next is not None
    np.testing.assert_array_equal(of_next[:, 0], [2, 0, 3])


def test_what_is_observed_of_a_text_is_its_own() -> None:
    """An unpaid final text, here "d", stands between the others."""
    spec: Any = dataclasses.replace(SPEC, last_text=False)
    reward = Alphabet()
    texts = np.zeros((5, 1, *spec.observation[spec.text_field].shape), np.uint8)
    texts[:, 0, 0] = list(b"adeea")
    observation = {
        spec.text_field: texts,
        spec.count_field: np.array([2, 1, 1, 4, 1], np.int32)[:, None],
    }
    last = np.array([0, 1, 0, 0, 0], bool)[:, None]

    RewardLookup(spec, reward, "read", 1.0, Meters(), 0).pay(observation, columns_of(last))

    (batch,) = reward.observed
    assert batch.discounted is not None
    shares = dict(zip(bytes(batch.texts[:, 0]).decode(), batch.discounted.tolist(), strict=True))
    assert shares == {"a": 0.5, "e": 1.25}


def test_a_row_repeated_from_the_previous_batch_is_paid_once() -> None:
    spec: Any = SPEC
    texts = np.zeros((3, 1, *spec.observation[spec.text_field].shape), np.uint8)
    texts[:, 0, 0] = list(b"dab")
    observation = {spec.text_field: texts, spec.count_field: np.ones((3, 1), np.int32)}
    reward = Alphabet()
    last = np.array([1, 0, 0], bool)[:, None]
    lookup = RewardLookup(spec, reward, "read", 1.0, Meters(), 0)
    _, of_last, _ = lookup.pay(observation, columns_of(last))
    np.testing.assert_array_equal(of_last, np.zeros((2, 1)))
    assert bytes(reward.observed[0].texts[:, 0]) == b"a"


@pytest.mark.parametrize(("of_last", "total"), [(None, 2.0), (8.0, 4.0)])
def test_an_episodes_return_holds_the_final_text(of_last: float | None, total: float) -> None:
    batch = column([0, 0, 0], [0, 0, 1], [0, 1, 0], intrinsic=1.0)
    if of_last is not None:
        paid_last = np.zeros_like(batch.intrinsic_reward)
        paid_last[1] = of_last
        batch = batch._replace(next_intrinsic_reward=paid_last)
    count = np.array([1, 1, 2, 1], np.int32)[:, None]
    sums = ReturnSums(2.0).add(batch, count, np.array([7]), np.zeros((3, 1), int))
    assert sums == [IntrinsicReturn(7, 0, total)]


def test_columns_of_a_batch_are_summed_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(40, 6)).astype(np.float32)
    ended = np.zeros((40, 6), bool)
    ended[[3, 39, 20], [1, 1, 4]] = True
    last = np.zeros((41, 6), bool)
    last[1:] = ended
    last[0, 2] = True
    episode = np.zeros((40, 6), int)
    joint = ReturnSums(0.5)
    alone = ReturnSums(0.5)
    for _ in range(2):
        batch = column([0] * 40, [0] * 40, [0] * 41)._replace(
            intrinsic_reward=rewards, terminated=ended, truncated=np.zeros_like(ended), last=last
        )
        returns = joint.add(batch, None, np.arange(6), episode)
        of_columns = []
        for env in range(6):
            only = slice(env, env + 1)
            one = batch._replace(
                intrinsic_reward=rewards[:, only],
                terminated=ended[:, only],
                truncated=np.zeros_like(ended[:, only]),
                last=last[:, only],
            )
            of_columns += alone.add(one, None, np.array([env]), episode[:, only])
        assert returns == of_columns
    # The sums of running episodes: they end with the first row of the next batch.
    ends = column([0], [0], [1])
    ends = ends._replace(
        intrinsic_reward=np.zeros((1, 6), np.float32),
        terminated=np.ones((1, 6), bool),
        truncated=np.zeros((1, 6), bool),
        last=np.zeros((2, 6), bool),
    )
    running = joint.add(ends, None, np.arange(6), np.zeros((1, 6), int))
    by_hand = np.float64(rewards[1:, 2].astype(np.float64).sum())
    assert running[2] == IntrinsicReturn(2, 0, by_hand + by_hand)
