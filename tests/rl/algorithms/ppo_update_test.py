"""The update of algorithm ppo on several devices, and the sizes of its parts that are refused."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.core.training import schedules
from motif_jax.rl.algorithms import ppo_update, trajectory
from motif_jax.rl.config import AgentConfig, agent_config
from tests.agents import FLAT_SPEC, flat_network, random_batch

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def config(**changes: Any) -> AgentConfig:
    made = resources.config("train_language_agent", "")
    made.batch_size, made.rollout, made.optimizer.learning_rate = 24, 6, 1e-2
    made.algorithm.update({"minibatch_size": 24, "microbatch_size": 6, "epochs": 1, **changes})
    return agent_config(made)


@pytest.mark.slow
def test_devices_agree_and_learn_from_all_rows() -> None:
    network, settings = flat_network(core="none"), config()
    optimizer = schedules.make_optimizer(settings.optimizer)
    state = ppo_update.make_state(network, optimizer, jax.random.key(0))
    update = ppo_update.make_update(network, optimizer, settings)
    made = jax.tree.map(jnp.asarray, random_batch(FLAT_SPEC, network.state_size, 6, 4, seed=3))
    one, metrics = jax.jit(update)(state, made)
    axes = jax.tree.broadcast(trajectory.BATCH_AXES, made)
    halves = jax.tree.map(lambda x, axis: jnp.stack(jnp.split(x, 2, axis)), made, axes)
    mapped = jax.jit(jax.vmap(lambda s, b: update(s, b, axis_name="d"), in_axes=(None, 0), axis_name="d"))
    two, both = mapped(state, halves)
    first, second = (jax.tree.map(lambda leaf, n=n: leaf[n], two.params) for n in range(2))
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_close(first, one.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both["loss/policy"][0], metrics["loss/policy"], rtol=1e-4)
    assert two.env_steps.tolist() == [one.env_steps.tolist()] * 2


def test_bad_values_are_one_line() -> None:
    for key, value, of in (
        ("minibatch_size", 7, "batch_size=24"),
        ("microbatch_size", 5, "minibatch_size=24"),
        ("recurrence", 4, "rollout=6"),
    ):
        with pytest.raises(UserError, match=rf"algorithm\.{key}={value}.*{of}"):
            ppo_update.check(config(**{key: value}))
