"""Two acting devices and a batcher between two updates: what they give, and that they go on as if nothing had been."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.envs import registry
from motif_jax.rewards import BatchMessages, RewardKind, Values
from motif_jax.rl import play_state
from motif_jax.rl.actors.inline import InlineActors
from motif_jax.rl.actors.rollouts import ActorsConfig
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.batcher import ActorSource, Batcher, Finished, put
from motif_jax.rl.inference import Inference
from motif_jax.rl.publishing import Publisher
from motif_jax.rl.reward_lookup import IntrinsicReturn, ReturnSums, RewardLookup
from tests.recorded_outputs import assert_matches_packed_recording, shown_array
from tests.rl.runs import column

pytestmark = pytest.mark.usefixtures("compiled_quickly")
ENVS, ROLLOUT, COLUMNS = 2, 5, 3
SPEC = registry.spec("Recall-v0", delay=4, cues=3)


class Adding:
    """Stands for a network: its state is a sum over the steps, and the value tells it; one leaf is empty."""

    spec, fields = SPEC, ("features", "sign_count")

    def initial_state(self, rows: int) -> Any:
        return {"sum": jnp.zeros((rows, 2)), "none": jnp.zeros((rows, 0))}

    def apply(self, params: Any, rows: Any, state: Any, first: jax.Array) -> tuple[Any, Any, Any]:
        before = jnp.where(first[0][:, None], 0.0, state["sum"])
        total = before + rows["features"][0, :, :2] + params["w"]
        logits = jnp.stack([total[:, 0], total[:, 1], 0.1 * rows["sign_count"][0]], axis=-1)
        return logits[None], (10 * total[:, 0] + total[:, 1])[None], {**state, "sum": total}

    def cropped(self, observation: Any) -> Any:
        return observation


class Sums(RewardKind):
    """Pays a text by its bytes; keeps what it hears of."""

    def __init__(self) -> None:
        self.met: list[BatchMessages] = []

    def lookup(self, texts: np.ndarray) -> Values:
        return Values(texts.sum(axis=1).astype(np.float32), 10 + len(self.met))

    def observe(self, met: BatchMessages) -> None:
        self.met.append(met)


class Play:
    """Sources of 4 groups each on two devices, a batcher, and what has been played."""

    def __init__(self) -> None:
        self.meters, self.reward, self.finished = Meters(), Sums(), deque[Finished]()
        devices = jax.devices()[:2]
        self.parallel = DataParallel(devices[:1])
        self.publisher = Publisher(
            devices, lambda params: {**params, "w": params["w"] / 2}, {"fixed": jnp.ones(1)}
        )
        self.publisher.publish(7, {"w": jnp.array([0.5, 0.25])})
        self.sources = []
        for number, device in enumerate(devices):
            config = ActorsConfig(
                "Recall-v0",
                {"delay": 4, "cues": 3},
                1,
                2,
                ENVS,
                ROLLOUT,
                slots_per_group=3,
                first_env=8 * number,
                remembered=9,
            )
            actors = InlineActors(config, (), lambda slot, n=number: self.finished.append(Finished(n, slot)))
            key = jax.random.PRNGKey(number)
            inference = Inference(Adding(), actors, self.publisher, device, key, self.meters, 5)  # type: ignore[arg-type]
            self.sources.append(ActorSource(actors, inference))
        lookup = RewardLookup(SPEC, self.reward, 0.5, self.meters, 3)
        self.batcher = Batcher(SPEC, self.sources, COLUMNS, self.meters, lookup, crop=self._crop)
        self.made: list[Any] = []

    def _crop(self, observation: Any) -> Any:
        return {name: x for name, x in observation.items() if name != "sign"}

    def start(self) -> None:
        for source in self.sources:
            source.actors.start()

    def go_on(self, turns: range) -> None:
        """Some groups are held back, others for a turn only; a batch is taken as soon as there is one."""
        for turn in turns:
            for number, source in enumerate(self.sources):
                hold = lambda each, turn=turn: each.row == 0 and each.group % 3 == turn % 3  # noqa: E731
                self.made.append(source.inference.serve(0.0, hold if number and turn % 4 != 3 else None))
            while self.finished and not self.batcher.is_full():
                self.batcher.add(self.finished.popleft())
            if self.batcher.is_full():
                batch = self.batcher.next()
                trajectory.check(batch.trajectories)
                leaves = jax.tree.leaves(batch.trajectories._replace(initial_state=None))
                shared = [array for source in self.sources for array in source.actors.slots.arrays.values()]
                assert not any(np.may_share_memory(leaf, array) for leaf in leaves for array in shared)
                batch = put(batch, self.parallel)
                rows = jax.tree_util.tree_leaves_with_path(batch.trajectories)
                self.made.append([f"{jax.tree_util.keystr(path)} {shown_array(leaf)}" for path, leaf in rows])
                self.made.append(batch._replace(trajectories=None)._asdict())  # type: ignore[arg-type]


@pytest.fixture
def whole() -> Play:
    play = Play()
    play.start()
    play.go_on(range(20))
    return play


def test_what_is_played_and_batched(whole: Play, record: bool) -> None:
    met = [
        [*map(shown_array, (each.texts, each.counts, each.discounted)), each.steps, each.number]
        for each in whole.reward.met
    ]
    sums, counts, _, _ = whole.meters.read()
    numbers = [sums[f"inference/{name}"] for name in ("bytes", "rows", "padding")]
    parts = {"made": whole.made, "met": met, "numbers": numbers, "counts": counts}
    shown = {name: json.dumps(part, indent=0, default=str) for name, part in parts.items()}
    assert_matches_packed_recording("played_batches", shown, record)


def test_it_goes_on_where_it_was(whole: Play) -> None:
    first = Play()
    first.start()
    first.go_on(range(6))
    assert first.finished
    plain, arrays = play_state.of(first.sources, first.batcher, first.finished)
    assert any(each["inference"]["held"] for each in plain["sources"])
    assert all(plain["batcher"].values())
    plain, arrays = json.loads(json.dumps(plain)), jax.tree.map(np.array, arrays)
    again = Play()
    again.reward.met, again.batcher._lookup._number = first.reward.met, first.batcher._lookup._number
    again.finished.extend(play_state.restore(plain, arrays, again.sources, again.batcher))
    again.start()
    again.go_on(range(6, 20))
    made = json.dumps([*first.made, *again.made], default=str)
    assert made == json.dumps(whole.made, default=str)


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
