from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.actors.inline import InlineActors
from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.algorithms import trajectory
from motif_jax.devices.meters import Meters
from motif_jax.envs import registry
from motif_jax.rewards import BatchMessages, IntrinsicReward, Values
from motif_jax.rl.batcher import ActorSource, Batch, Batcher, Finished
from motif_jax.rl.reward_lookup import IntrinsicReturn, ReturnSums, RewardLookup
from tests.rl.runs import column

ROLLOUT, ENVS = 5, 3
SPEC = registry.spec("Recall-v0", delay=2)


class Marks:
    """Stands for inference: the state before row 0 of a slot is its row's number, plus an offset."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    def initial_states(self, rows: np.ndarray) -> jnp.ndarray:
        return jnp.asarray(rows, jnp.float32)[:, None] + self.offset


def make_sources(count: int) -> list[ActorSource]:
    sources = []
    for number in range(count):
        config = ActorsConfig(
            "Recall-v0", {"delay": 2}, 1, 1, ENVS, ROLLOUT, slots_per_group=4, first_env=number * 2 * ENVS
        )
        actors = InlineActors(config)
        actors.start()
        sources.append(ActorSource(actors, Marks(1000.0 * number)))  # type: ignore[arg-type]
    return sources


def run(
    sources: list[ActorSource], columns: int, batches: int, *given: Any
) -> tuple[list[Batch], list[Finished]]:
    batcher = Batcher(SPEC, sources, columns, Meters(), *given)
    finished: list[Finished] = []
    for number, source in enumerate(sources):
        source.actors.on_finished = lambda slot, n=number: finished.append(Finished(n, slot))
    made: list[Batch] = []
    order: list[Finished] = []
    counter = 0
    while len(made) < batches:
        for source in sources:
            ready = source.actors.ready(0)
            for entry in ready:
                counter += 1
                slots = source.actors.slots
                slots.action[entry.slot, entry.row] = counter % 4
                slots.behaviour_log_prob[entry.slot, entry.row] = -counter
                slots.behaviour_value[entry.slot, entry.row] = counter
                slots.parameter_version[entry.slot, entry.row] = 1
            source.actors.act(ready)
        while finished:
            order.append(finished[0])
            batcher.add(finished.pop(0))
            if batcher.is_full():
                made.append(batcher.next())
    return made, order


class Sums(IntrinsicReward):
    """Pays the sum of a text's bytes; its version is the number of batches that it has heard of."""

    def __init__(self) -> None:
        self.met: list[BatchMessages] = []

    def lookup(self, texts: np.ndarray) -> Values:
        assert len(np.unique(texts, axis=0)) == len(texts)
        return Values(texts.sum(axis=1).astype(np.float32), len(self.met))

    def observe(self, met: BatchMessages) -> None:
        self.met.append(met)


def paid(reward: IntrinsicReward, first: int = 0) -> RewardLookup:
    return RewardLookup(SPEC, reward, 3.0, Meters(), first)


@pytest.mark.parametrize(("columns", "count"), [(8, 1), (2, 1), (4, 2)])
def test_batches_hold_the_columns_of_the_slots_in_order(columns: int, count: int) -> None:
    sources = make_sources(count)
    heard: list[Any] = []
    batches, order = run(sources, columns, 6, paid(Sums(), 7), lambda *batch: heard.append(batch))
    states = np.concatenate([np.asarray(b.trajectories.initial_state)[:, 0] for b in batches])
    expected = [1000.0 * f.source + f.slot * ENVS + c for f in order for c in range(ENVS)]
    np.testing.assert_array_equal(states, expected[: len(states)])
    assert [trajectories for trajectories, _, _ in heard] == [batch.trajectories for batch in batches]
    for batch in batches:
        trajectory.check(batch.trajectories)
        rows = batch.trajectories
        assert batch.num_steps == (~rows.last[:-1]).sum()
        np.testing.assert_array_equal(
            rows.intrinsic_reward, rows.observation["sign"][:-1].sum(axis=-1).astype(np.float32)
        )


def test_batches_are_copies_and_slots_come_back() -> None:
    sources = make_sources(1)
    slots = sources[0].actors.slots
    batches, order = run(sources, 4, 12)
    assert len(order) > slots.layout.num_slots, "more rollouts than slots: they were used again"
    for leaf in [*batches[0].trajectories.observation.values(), batches[0].trajectories.reward]:
        assert not any(
            np.shares_memory(leaf, shared) for shared in (*slots.observation.values(), slots.reward)
        )
    assert (batches[0].trajectories.intrinsic_reward == 0).all()
    assert batches[0].intrinsic_returns == []


def test_intrinsic_returns_are_those_of_whole_episodes() -> None:
    """Recall with two blank steps: signs 'the cue is n', '', '', 'which cue?' are rewarded, the final '' is not."""
    batches, _ = run(make_sources(1), 4, 30, paid(Sums()))
    returns = [value for batch in batches for value in batch.intrinsic_returns]
    assert {(r.env, r.episode) for r in returns} >= {(env, n) for env in range(6) for n in range(4)}
    asked = sum(b"which cue?")
    allowed = {float(sum(b"the cue is %d" % cue) + asked) for cue in range(4)}
    assert {r.value for r in returns} <= allowed
    assert len({(r.env, r.episode) for r in returns}) == len(returns)


def test_a_reward_hears_what_was_met_and_a_batch_knows_its_version() -> None:
    reward = Sums()
    batches, _ = run(make_sources(1), 4, 5, paid(reward, 7))
    assert [batch.reward_version for batch in batches] == list(range(len(batches)))
    assert [met.number for met in reward.met] == list(range(7, 7 + len(batches)))
    for batch, met in zip(batches, reward.met, strict=True):
        rewarded = ~batch.trajectories.last[:-1]
        texts, counts = np.unique(
            batch.trajectories.observation["sign"][:-1][rewarded], axis=0, return_counts=True
        )
        order = np.lexsort(met.texts.T[::-1])
        np.testing.assert_array_equal(met.texts[order], texts)
        np.testing.assert_array_equal(met.counts[order], counts)
        assert met.steps == batch.num_steps == counts.sum()


def test_return_of_an_episode_that_was_lost_is_not_mixed_with_the_next() -> None:
    sums = ReturnSums(0.0)
    # The actor dies behind the first batch: episode 0 is not heard of again.
    for number, terminated, last, found in (
        (0, [0, 0, 0], [0, 0, 0], []),
        (1, [0, 1, 0], [0, 0, 1], [IntrinsicReturn(7, 1, 2.0)]),
        (2, [0, 0, 1], [0, 0, 0], [IntrinsicReturn(7, 2, 3.0)]),
    ):
        batch = column([0, 0, 0], last, terminated, intrinsic=1.0)
        assert sums.add(batch, None, np.array([7]), np.full((3, 1), number)) == found
