"""What bfloat16 changes in an update of the published network: little of the gradient, none of the units it is kept in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.algorithms import appo, schedules, total_reward, value_normalisation
from tests.agents import (
    FLAT_SPEC,
    NETHACK_SPEC,
    agent_config,
    flat_network,
    nethack_network,
    random_batch,
    random_params,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly")
LENGTH, ROLLOUTS = 8, 4


def relative_error(value: Any, reference: Any) -> float:
    ours, theirs = (
        np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])
        for tree in (value, reference)
    )
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.slow
def test_gradients_of_bfloat16_are_those_of_float32_within_its_rounding() -> None:
    config = agent_config()
    networks = {dtype: nethack_network(dtype=dtype) for dtype in ("float32", "bfloat16")}
    reference = networks["float32"]
    params = random_params(reference)
    batch = random_batch(NETHACK_SPEC, reference.state_size, LENGTH, ROLLOUTS, seed=0)
    logits, value, _ = jax.jit(reference.apply)(params, batch.observation, batch.initial_state, batch.first)
    log_prob = np.take_along_axis(jax.nn.log_softmax(logits[:-1]), batch.action[..., None], -1)[..., 0]
    batch = batch._replace(behaviour_log_prob=log_prob, behaviour_value=np.asarray(value[:-1]))
    state = appo.TrainState(
        params,
        (),
        jnp.zeros((), jnp.int32),
        schedules.no_steps(),
        jax.random.key(0),
        value_normalisation.initial(),
    )
    reward = total_reward.compute_rewards(config.reward, batch, "message_count").total
    gradients, metrics = {}, {}
    for dtype, network in networks.items():
        update = jax.jit(lambda s, b, r, n=network: appo.gradient(n, config, s, b, r)[:2])
        gradients[dtype], metrics[dtype] = update(state, batch, reward)
    # Rounding to 8 bits is half of 2^-8 = 0.002 a number.
    assert relative_error(gradients["bfloat16"], gradients["float32"]) < 0.02
    paths = jax.tree_util.tree_leaves_with_path(gradients["float32"])
    for (path, exact), rounded in zip(paths, jax.tree.leaves(gradients["bfloat16"]), strict=True):
        assert rounded.dtype == jnp.float32
        # Also of biases, which are sums over all rows whose terms cancel: they are added up in float32. Of the one bias of
        # the value head hardly anything is left.
        assert exact.size == 1 or relative_error(rounded, exact) < 0.03, jax.tree_util.keystr(path)
    # The policy that acts and the one that learns may differ by as much: without consequence for ratios.
    rounded = metrics["bfloat16"]
    assert 0 < rounded["policy/kl"] < 1e-4
    assert rounded["policy/clip_fraction"] == 0
    for name in ("loss/value", "loss/exploration", "value/mean", "value/target_mean", "advantage/std"):
        np.testing.assert_allclose(
            rounded[name], metrics["float32"][name], rtol=0.03, atol=3e-3, err_msg=name
        )


@pytest.mark.slow
def test_parameters_and_optimizer_stay_float32_when_the_network_computes_in_bfloat16() -> None:
    config, network = agent_config(), flat_network(dtype="bfloat16")
    optimizer = schedules.make_optimizer(config.optimizer)
    fresh = jax.eval_shape(lambda: appo.make_state(network, optimizer, jax.random.PRNGKey(0)))
    before = random_params(network)
    state = fresh._replace(
        params=before,
        opt_state=optimizer.init(before),
        step=jnp.int32(0),
        env_steps=schedules.no_steps(),
        key=jax.random.PRNGKey(0),
        value_statistics=value_normalisation.initial(),
    )
    batch = random_batch(FLAT_SPEC, network.state_size, LENGTH, ROLLOUTS, seed=0)
    after, before = jax.device_get(
        (jax.jit(appo.make_update(network, optimizer, config))(state, batch)[0], before)
    )
    computed = jax.make_jaxpr(network.apply)(before, batch.observation, batch.initial_state, batch.first)
    assert "bf16" in str(computed)
    adam = after.opt_state[1]
    fresh_leaves = jax.tree.leaves((fresh.params, fresh.opt_state[1].mu, fresh.opt_state[1].nu))
    assert all(leaf.dtype == jnp.float32 for leaf in fresh_leaves)
    # Nor are they numbers rounded to bfloat16, where a step of 1e-4 is lost on a weight of 0.1.
    for path, leaf in jax.tree_util.tree_leaves_with_path((after.params, adam.mu, adam.nu)):
        name, rounded = jax.tree_util.keystr(path), leaf.astype(jnp.bfloat16).astype(jnp.float32)
        assert leaf.dtype == jnp.float32, name
        assert np.mean(leaf != rounded) > 0.5, name
    moved = jax.tree.map(lambda new, old: np.ravel(np.abs(new - old)), after.params, before)
    # Adam's first step is the learning rate, but where the gradient is next to nothing.
    median = np.median(np.concatenate(jax.tree.leaves(moved)))
    np.testing.assert_allclose(median, config.optimizer.learning_rate, rtol=0.02)
