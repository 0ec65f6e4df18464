"""The parts of a system together: parameters for acting devices, behaviour and learner, and
episodes at a stop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.interruption import Interruption
from motif_jax.rl import settings
from motif_jax.rl.algorithms.appo import ValueStatistics
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.config import agent_config
from motif_jax.rl.episode_log import EpisodeLog
from motif_jax.rl.inference import Inference
from motif_jax.rl.learner import Learner
from motif_jax.rl.run_writer import RunWriter
from motif_jax.rl.system import System
from tests.play.agent_runs import recall_config, recall_training
from tests.rl import language_training_test
from tests.rl.runs import episodes, train


@pytest.mark.slow
@pytest.mark.parametrize("acting", ["0", "0,1"])
def test_frozen_parameters_are_once_on_each_acting_device(tmp_path: Path, acting: str) -> None:
    """The learner shares its copy where only its device acts; other devices have one copy each, for
    the whole run.
    """
    devices = [jax.local_devices()[int(number)] for number in acting.split(",")]
    config = language_training_test.config(tmp_path, **language_training_test.LORA)
    config.devices.actor = acting
    config.actors.workers = len(devices)
    config.actors.envs_per_worker = 2
    config.batch_size = config.rollout * 2 * len(devices)
    config.algorithm.minibatch_size = config.batch_size
    config.algorithm.microbatch_size = config.batch_size
    system = System(settings.resolved(agent_config(config)))
    if acting != "0":  # one device for everything is tested by whole trainings
        with BatchStream(system) as stream:
            assert stream.get() is not None
    state = system.learner.state
    publisher = system.publisher
    params_before = [publisher.newest(device).params for device in devices]

    publisher.publish(1, state.params)

    for device, old in zip(devices, params_before, strict=True):
        new = publisher.newest(device).params
        assert all(leaf.devices() == {device} for leaf in jax.tree.leaves((old, new)))
        for name, frozen in state.frozen.items():
            jax.tree.map(np.testing.assert_array_equal, old[name], frozen)
            # What the learner shares it shares with every update: it is not in a publication
            # without it.
            assert (name in new) == (acting != "0")
            if name in new:
                pairs = zip(jax.tree.leaves(old[name]), jax.tree.leaves(new[name]), strict=True)
                assert all(one is other for one, other in pairs)


@pytest.mark.extra
def test_threads_leave_the_actors_cores_after_the_first_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until then programs are compiled, on all cores."""
    calls: list[str] = []
    original_compile = Inference.compile
    original_step = Learner.step

    def compile_programs(inference: Inference) -> None:
        calls.append("compiled")
        original_compile(inference)

    def step(learner: Learner, batch: Any) -> None:
        calls.append("update")
        original_step(learner, batch)

    thread_cores = Mock(side_effect=lambda cores: calls.append("threads moved") or Mock(ids=()))
    monkeypatch.setattr("motif_jax.rl.system.ThreadCores", thread_cores)
    monkeypatch.setattr(Inference, "compile", compile_programs)
    monkeypatch.setattr(Learner, "step", step)
    monkeypatch.setattr(settings, "acts_beside_a_gpu", lambda config: True)

    train(tmp_path, recall_config(serial=True, batch_size=48, train_for_env_steps=144))

    assert calls[:4] == ["compiled", "update", "threads moved", "update"]
    assert calls.count("threads moved") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "deviation"), [(0, 1), (20, 3)])
def test_behaviour_is_what_the_learner_recomputes(mean: int, deviation: int) -> None:
    """One pass over a rollout gives its log-probabilities, and its values in units of reward."""
    normalisation = {"algorithm__value_normalisation": "popart"} if mean else {}
    system = System(settings.resolved(recall_training(serial=True, batch_size=48, **normalisation)))
    state = system.learner.state
    if mean:
        moments = ValueStatistics(*map(jnp.float32, (mean, deviation**2, 1)))
        system.learner.state = system.parallel.replicate(state._replace(value_statistics=moments))
        system.learner.publish()
    with BatchStream(system) as stream:
        batch = [stream.get() for _ in range(3)][-1]
    assert batch is not None
    rows = jax.tree.map(lambda x: np.asarray(x)[0], batch.trajectories)
    logits, value, _ = system.network.apply(
        jax.device_get(state.params), rows.observation, rows.initial_state, rows.first
    )
    log_prob = np.take_along_axis(jax.nn.log_softmax(logits[:-1]), rows.action[..., None], -1)[
        ..., 0
    ]
    np.testing.assert_allclose(log_prob, rows.behaviour_log_prob, atol=1e-5)
    np.testing.assert_allclose(
        rows.behaviour_value, value[:-1] * deviation + mean, rtol=1e-5, atol=1e-5
    )
    assert np.abs(rows.initial_state).max() > 0.01


@pytest.mark.slow
def test_a_stopped_serial_run_loses_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some episodes the intrinsic return comes with a batch that the stopped run does not learn
    from any more.
    """
    (tmp_path / "table.json").write_text(json.dumps({"": 1.0}))
    config = recall_config(
        serial=True, batch_size=32, rollout=16, train_for_env_steps=10**6
    ).unlock()
    config.environment.name = "NetHackScore-v1"
    config.environment.max_episode_steps = 7
    config.network.encoder = "flat"
    config.network.flat_sizes = (4,)
    config.actors.workers = 1
    config.actors.envs_per_worker = 6
    config.actors.groups_per_worker = 2
    config.actors.warmup_steps = 0
    config.reward.kind = "table"
    config.reward.table = str(tmp_path / "table.json")
    config.reward.intrinsic_coefficient = 0.1
    stop = Interruption()
    reported: list[tuple[int, int]] = []
    original_add = RunWriter.add
    original_join = EpisodeLog.join

    def add_and_stop(self: RunWriter, step: int, batch: Any) -> None:
        original_add(self, step, batch)
        stop.requested = True

    def note_reports(
        self: EpisodeLog, step: int, reports: Any, returns: Any
    ) -> list[dict[str, Any]]:
        reported.extend((report["env"], report["episode"]) for report in reports)
        return original_join(self, step, reports, returns)

    monkeypatch.setattr(RunWriter, "add", add_and_stop)
    monkeypatch.setattr(EpisodeLog, "join", note_reports)
    train(tmp_path, config, stop)

    lines = episodes(tmp_path)
    assert sorted((row["env"], row["episode"]) for row in lines) == sorted(reported)
    assert any(line["intrinsic_return"] is None for line in lines)
