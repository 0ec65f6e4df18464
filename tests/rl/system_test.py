"""What the parts of a system hand each other: parameters to those that act, and what a checkpoint is told of the games."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.interruption import Interruption
from motif_jax.rl import settings
from motif_jax.rl.algorithms.value_normalisation import ValueStatistics
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.config import agent_config
from motif_jax.rl.records import Records
from motif_jax.rl.system import System
from tests.play.agent_runs import recall_config, recall_training
from tests.rl import language_training_test
from tests.rl.runs import episodes, saved, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
@pytest.mark.parametrize("acting", ["0", "0,1"])
def test_what_is_frozen_lies_once_where_somebody_acts(tmp_path: Path, acting: str) -> None:
    """The learner lends its own copy where only its device acts; other devices have one each, for the whole run."""
    places = [jax.local_devices()[int(number)] for number in acting.split(",")]
    config = language_training_test.config(tmp_path, **language_training_test.LORA)
    config.devices.actor = acting
    config.actors.workers, config.actors.envs_per_worker = len(places), 2
    config.batch_size = config.rollout * 2 * len(places)
    config.algorithm.minibatch_size = config.algorithm.microbatch_size = config.batch_size
    system = System(settings.resolved(agent_config(config)))
    if acting != "0":  # with one device for everything whole trainings are tests
        with BatchStream(system) as stream:
            assert stream.get() is not None
    state, publisher = system.learner.state, system.publisher
    before = [publisher.newest(place).params for place in places]
    publisher.publish(1, state.params)
    for place, old in zip(places, before, strict=True):
        new = publisher.newest(place).params
        assert all(leaf.devices() == {place} for leaf in jax.tree.leaves((old, new)))
        for name, frozen in state.frozen.items():
            for one, learners in zip(jax.tree.leaves(old[name]), jax.tree.leaves(frozen), strict=True):
                np.testing.assert_array_equal(one, learners)
            assert (name in new) == (acting != "0"), "what the learner lends it lends with every update"
            pairs = zip(jax.tree.leaves(old[name]), jax.tree.leaves(new.get(name, old[name])), strict=True)
            assert all(one is other for one, other in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (20, 3)])
def test_behaviour_is_what_the_learner_recomputes(mean: int, deviation: int) -> None:
    """One pass over a rollout gives its log-probabilities, and its values in units of reward."""
    normalisation = {"algorithm__value_normalisation": "popart"} if mean else {}
    system = System(settings.resolved(recall_training(serial=True, batch_size=48, **normalisation)))
    state = system.learner.state
    if mean:
        moments = ValueStatistics(*map(jnp.float32, (mean, mean**2 + deviation**2, 1)))
        system.learner.state = system.parallel.replicate(state._replace(value_statistics=moments))
        system.learner._publish()
    with BatchStream(system) as stream:
        batch = [stream.get() for _ in range(3)][-1]
    assert batch is not None
    rows = jax.tree.map(lambda x: np.asarray(x)[0], batch.trajectories)
    given = rows.observation, rows.initial_state, rows.first
    logits, value, _ = system.network.apply(jax.device_get(state.params), *given)
    log_prob = np.take_along_axis(jax.nn.log_softmax(logits[:-1]), rows.action[..., None], -1)[..., 0]
    np.testing.assert_allclose(log_prob, rows.behaviour_log_prob, atol=1e-5)
    np.testing.assert_allclose(rows.behaviour_value, value[:-1] * deviation + mean, rtol=1e-5, atol=1e-5)
    assert np.abs(rows.initial_state).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("remembered", [True, False])
def test_a_serial_run_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: bool) -> None:
    """Some are known by halves then: their intrinsic return comes with a batch that the run does not learn from any more."""
    config = recall_config(serial=True, batch_size=32, rollout=16, train_for_env_steps=10**6).unlock()
    config.environment.name, config.environment.max_episode_steps = "NetHackScore-v1", 7
    config.network.encoder, config.network.flat_sizes = "flat", (4,)
    config.actors.workers, config.actors.envs_per_worker, config.actors.groups_per_worker = 1, 6, 2
    config.actors.warmup_steps = 0
    config.compat.seed_noop = not remembered  # such games cannot be played again
    (tmp_path / "table.json").write_text(json.dumps({"": 1.0}))
    config.reward.kind, config.reward.table = "table", str(tmp_path / "table.json")
    config.reward.intrinsic_coefficient = 0.1
    stop, learn, look, reported = Interruption(), Records.add, Records._reports, []

    def add(self: Records, step: int, batch: Any) -> None:
        learn(self, step, batch)
        stop.requested = True

    def reports(self: Records, step: int) -> list[dict[str, Any]]:
        found = look(self, step)
        reported.extend((each["env"], each["episode"]) for each in found)
        return found

    monkeypatch.setattr(Records, "add", add)
    monkeypatch.setattr(Records, "_reports", reports)
    train(tmp_path, config, stop)
    lines, (_, items) = episodes(tmp_path), saved(tmp_path, "progress")
    kept = items["progress"]["episode_halves"]["reports"] if remembered else []
    found = [(each["env"], each["episode"]) for each in [*lines, *kept]]
    assert sorted(found) == sorted(reported)
    assert len(kept) if remembered else any(line["intrinsic_return"] is None for line in lines)
