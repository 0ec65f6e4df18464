"""The learning rate of an agent's run follows the environment steps that were really taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.system import System
from tests.rollouts.agent_runs import recall_config

TOTAL, PEAK = 1_500, 3e-3


def play(system: System, done: int, until: int) -> tuple[int, list[tuple[int, float]]]:
    """Learns until so many steps are done; gives the steps done and, for every update, those before it and its rate."""
    rates = []
    with BatchStream(system) as stream:
        while done < until:
            batch = stream.get()
            assert batch is not None
            system.learner.step(batch)
            system.learner.settle()
            rates.append((done, system.learner.metrics()["optimizer/learning_rate"]))
            done += batch.num_steps
    return done, rates


@pytest.mark.extra
def test_the_last_updates_of_a_run_learn_and_a_run_that_goes_on_has_the_same_rates(
    tmp_path: Path,
) -> None:
    # Games of 6 steps: one row in seven holds a final observation, which is not a step.
    config = settings.resolved(
        recall_config(
            train_for_env_steps=TOTAL, serial=True, devices__learner="0,1", algorithm__minibatches=2
        )
    )
    assert config.optimizer.schedule == "linear"
    first = System(config)
    done, before = play(first, 0, TOTAL // 2)
    with agent_checkpoints.open_checkpoints(tmp_path, 1) as checkpoints:
        agent_checkpoints.save(checkpoints, 1, *first.items(), {}, asynchronous=False)
        second = System(config, agent_checkpoints.Snapshot(checkpoints, 1))
    done, after = play(second, done, TOTAL)
    assert len(after) > 2
    assert len(before) + len(after) > -(-TOTAL // config.batch_size)
    steps, rates = np.array([*before, *after]).T
    np.testing.assert_allclose(rates, PEAK * (1 - steps / TOTAL), rtol=1e-4)
    for copy in second.learner.state.env_steps.addressable_shards:
        assert np.asarray(copy.data).tolist() == [0, done]
