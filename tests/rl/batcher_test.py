"""Two acting devices and a batcher between two updates: what batches hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.envs import registry
from motif_jax.rewards import BatchMessages, RewardKind, Values
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.batcher import ActorSource, Batch, Batcher, Finished, put
from motif_jax.rl.inference import Inference, Publisher
from motif_jax.rl.reward_lookup import IntrinsicReturn, ReturnSums, RewardLookup
from tests.rl.runs import column

pytestmark = pytest.mark.slow

ENVS = 2
ROLLOUT = 5
COLUMNS = 3
FIRST_UPDATE = 3
VERSION = 7
SPEC = registry.spec("Recall-v0", delay=4, cues=3)
# As published: half of the learner's.
ACTING_PARAMS = {"w": np.array([0.25, 0.125], np.float32)}


class Adding:
    """Stands for a network: its state is a sum over the steps, from which value and logits follow;
    one leaf is empty.
    """

    spec = SPEC
    fields = ("features", "sign_count")

    def initial_state(self, rows: int) -> Any:
        return {"sum": jnp.zeros((rows, 2)), "none": jnp.zeros((rows, 0))}

    def apply(self, params: Any, rows: Any, state: Any, first: jax.Array) -> tuple[Any, Any, Any]:
        before = jnp.where(first[0][:, None], 0.0, state["sum"])
        total = before + rows["features"][0, :, :2] + params["w"]
        logits = jnp.stack([total[:, 0], total[:, 1], 0.1 * rows["sign_count"][0]], axis=-1)
        return logits[None], (10 * total[:, 0] + total[:, 1])[None], {**state, "sum": total}

    def cropped(self, observation: Any) -> Any:
        return observation


class SumOfBytes(RewardKind):
    """Pays a text the sum of its bytes; remembers the messages that it observed."""

    def __init__(self) -> None:
        self.observed: list[BatchMessages] = []

    def lookup(self, texts: np.ndarray) -> Values:
        return Values(texts.sum(axis=1).astype(np.float32), len(self.observed))

    def observe(self, batch: BatchMessages) -> None:
        self.observed.append(batch)


class Listened(NamedTuple):
    """A batch on the host, as the batcher's listener receives it, not cropped."""

    batch: TrajectoryBatch
    envs: np.ndarray
    episode: np.ndarray


class Play:
    """Sources of 4 groups each on two devices, a batcher, and all that they made."""

    def __init__(self) -> None:
        self.meters = Meters()
        self.reward = SumOfBytes()
        self.finished = deque[Finished]()
        self.finished_count = 0
        self.served: list[int] = []
        self.listened: list[Listened] = []
        self.batches: list[Batch] = []

        devices = jax.devices()[:2]
        self.parallel = DataParallel(devices[:1])
        publisher = Publisher(
            devices, lambda params: {**params, "w": params["w"] / 2}, {"fixed": jnp.ones(1)}
        )
        publisher.publish(VERSION, {"w": jnp.array([0.5, 0.25])})
        self.sources = []
        for number, device in enumerate(devices):
            config = ActorsConfig(
                env="Recall-v0",
                options={"delay": 4, "cues": 3},
                seed=1,
                workers=2,
                envs_per_group=ENVS,
                rollout=ROLLOUT,
                slots_per_group=3,
                first_env=8 * number,
            )
            actors = InlineActors(
                config, (), lambda slot, source=number: self._finish(source, slot)
            )
            key = jax.random.PRNGKey(number)
            inference = Inference(Adding(), actors, publisher, device, key, self.meters, 5)  # type: ignore[arg-type]
            self.sources.append(ActorSource(actors, inference))
        lookup = RewardLookup(SPEC, self.reward, "read", 0.5, self.meters, FIRST_UPDATE)
        self.batcher = Batcher(
            SPEC, self.sources, COLUMNS, self.meters, lookup, listener=self._listen, crop=self._crop
        )

    def _finish(self, source: int, slot: int) -> None:
        self.finished_count += 1
        self.finished.append(Finished(source, slot))

    def _listen(self, batch: TrajectoryBatch, envs: np.ndarray, episode: np.ndarray) -> None:
        self.listened.append(Listened(batch, envs, episode))

    def _crop(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return {name: x for name, x in observation.items() if name != "sign"}

    def start(self) -> None:
        for source in self.sources:
            source.actors.start()

    def run(self, turns: range) -> None:
        """Some groups of the second source are held back, others for a turn only; batches are taken
        as soon as they are full.
        """
        for turn in turns:

            def hold(ready: Ready, turn: int = turn) -> bool:
                return ready.row == 0 and ready.group % 3 == turn % 3

            first, second = self.sources
            self.served.append(first.inference.serve(0.0))
            self.served.append(second.inference.serve(0.0, hold if turn % 4 != 3 else None))
            while self.finished and not self.batcher.is_full():
                self.batcher.add(self.finished.popleft())
            if self.batcher.is_full():
                self.batches.append(self.batcher.next())


@pytest.fixture
def play() -> Play:
    play = Play()
    play.start()
    play.run(range(20))
    return play


def test_batches_have_the_shapes_and_types_of_trajectories(play: Play) -> None:
    assert len(play.batches) > 5
    for batch in play.batches:
        trajectory.check(batch.trajectories)


def test_batches_share_no_memory_with_the_slots(play: Play) -> None:
    slots = [array for source in play.sources for array in source.actors.slots.arrays.values()]

    for batch in play.batches:
        for leaf in jax.tree.leaves(batch.trajectories._replace(initial_state=None)):
            assert not any(np.may_share_memory(leaf, array) for array in slots)


def test_every_column_of_a_slot_is_in_one_batch(play: Play) -> None:
    seen = []
    for _, envs, episode in play.listened:
        seen += list(zip(envs.tolist(), map(tuple, episode.T.tolist()), strict=True))

    # All columns of the slots that the batcher received, but for those that wait for a batch.
    received = ENVS * (play.finished_count - len(play.finished))
    assert len(seen) == COLUMNS * len(play.batches)
    assert 0 <= received - len(seen) < COLUMNS


def test_rollouts_of_an_environment_follow_without_a_gap(play: Play) -> None:
    last_row: dict[int, list[Any]] = {}
    compared = 0

    for batch, envs, _ in play.listened:
        for number, env in enumerate(envs.tolist()):
            fields = [*batch.observation.values(), batch.first, batch.last]
            if env in last_row:
                jax.tree.map(
                    np.testing.assert_array_equal, [x[0, number] for x in fields], last_row[env]
                )
                compared += 1
            last_row[env] = [x[ROLLOUT, number] for x in fields]

    assert last_row.keys() == set(range(16))
    assert compared > 0


def test_initial_states_give_the_outputs_that_were_played(play: Play) -> None:
    network = Adding()

    for batch, _, _ in play.listened:
        state = batch.initial_state
        for row in range(ROLLOUT):
            rows = {name: batch.observation[name][row : row + 1] for name in network.fields}
            logits, value, state = network.apply(
                ACTING_PARAMS, rows, state, batch.first[row : row + 1]
            )
            log_probs = jax.nn.log_softmax(logits[0])
            log_prob = np.take_along_axis(
                np.asarray(log_probs), batch.action[row][:, None], axis=1
            )[:, 0]
            np.testing.assert_allclose(batch.behaviour_value[row], value[0], rtol=1e-5)
            np.testing.assert_allclose(
                batch.behaviour_log_prob[row], log_prob, rtol=1e-4, atol=1e-6
            )
        np.testing.assert_array_equal(batch.parameter_version, VERSION)


def test_texts_are_paid_what_the_reward_says(play: Play) -> None:
    assert SPEC.text_field is not None
    for batch, _, _ in play.listened:
        sums = batch.observation[SPEC.text_field].sum(axis=-1).astype(np.float32)
        np.testing.assert_array_equal(batch.intrinsic_reward, sums[:-1])
        np.testing.assert_array_equal(
            batch.next_intrinsic_reward, np.where(batch.last[1:], sums[1:], 0)
        )


def test_the_reward_observes_the_steps_of_each_batch(play: Play) -> None:
    observed = play.reward.observed

    assert [messages.update_index for messages in observed] == [
        FIRST_UPDATE + number for number in range(len(play.batches))
    ]
    assert [messages.steps for messages in observed] == [batch.num_steps for batch in play.batches]


def test_the_learner_gets_cropped_observations(play: Play) -> None:
    for batch in play.batches:
        on_device = put(batch, play.parallel)
        assert on_device.trajectories.observation.keys() == SPEC.observation.keys() - {"sign"}
        assert on_device.num_bytes > 0


def test_meters_count_the_rows_that_were_served(play: Play) -> None:
    sums = play.meters.read().sums

    assert sums["inference/rows"] == sum(play.served)


def test_a_lost_episodes_return_is_not_mixed_with_the_next() -> None:
    sums = ReturnSums(0.0)
    # The actor dies after the first batch: the end of episode 0 is never reported.
    batches = (
        (0, [0, 0, 0], [0, 0, 0], []),
        (1, [0, 1, 0], [0, 0, 1], [IntrinsicReturn(7, 1, 2.0)]),
        (2, [0, 0, 1], [0, 0, 0], [IntrinsicReturn(7, 2, 3.0)]),
    )

    for episode, terminated, last, returns in batches:
        batch = column([0, 0, 0], last, terminated, intrinsic=1.0)
        assert sums.add(batch, None, np.array([7]), np.full((3, 1), episode)) == returns
