"""What bfloat16 changes in an update of the published network: little of the gradient, none of the
units it is kept in.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from motif_jax.nets import distributions
from motif_jax.rl.algorithms import total_reward
from motif_jax.rl.algorithms.appo import AppoAlgorithm
from tests.agents import (
    NETHACK_SPEC,
    appo_config,
    nethack_network,
    random_batch,
    random_params,
    train_state,
)

LENGTH = 8
ROLLOUTS = 4


def relative_error(value: Any, reference: Any) -> float:
    return float(optax.tree.norm(optax.tree.sub(value, reference)) / optax.tree.norm(reference))


@pytest.mark.extra
def test_gradients_of_bfloat16_are_those_of_float32_within_its_rounding() -> None:
    config = appo_config()
    networks = {dtype: nethack_network(dtype=dtype) for dtype in ("float32", "bfloat16")}
    reference = networks["float32"]
    params = random_params(reference)
    batch = random_batch(NETHACK_SPEC, reference.state_size, LENGTH, ROLLOUTS, seed=0)
    logits, value, _ = jax.jit(reference.apply)(
        params, batch.observation, batch.initial_state, batch.first
    )
    log_prob = distributions.categorical_log_prob(logits[:-1], batch.action)
    batch = batch._replace(behaviour_log_prob=log_prob, behaviour_value=value[:-1])
    state = train_state(params, optax.identity())
    reward = total_reward.compute_rewards(config.reward, batch, "message_count").total
    gradients = {}
    metrics = {}
    for dtype, network in networks.items():
        algorithm = AppoAlgorithm(config, network, optax.identity())
        update = jax.jit(lambda s, b, r, a=algorithm: a.gradient(s, b, r)[:2])
        gradients[dtype], metrics[dtype] = update(state, batch, reward)
    # Rounding to 8 bits is half of 2^-8 = 0.002 a number.
    assert relative_error(gradients["bfloat16"], gradients["float32"]) < 0.02
    paths = jax.tree_util.tree_leaves_with_path(gradients["float32"])
    for (path, exact), rounded in zip(paths, jax.tree.leaves(gradients["bfloat16"]), strict=True):
        assert rounded.dtype == jnp.float32
        # Also of biases, which are sums over all rows whose terms cancel: they are added up in
        # float32. Of the one bias of the value head hardly anything is left.
        assert exact.size == 1 or relative_error(rounded, exact) < 0.03, jax.tree_util.keystr(path)
    # The policy that acts and the one that learns may differ by as much: without consequence for
    # ratios.
    rounded = metrics["bfloat16"]
    assert 0 < rounded["policy/kl"] < 1e-4
    assert rounded["policy/clip_fraction"] == 0
    for name in (
        "loss/value",
        "loss/exploration",
        "value/mean",
        "value/target_mean",
        "advantage/std",
    ):
        assert rounded[name] == pytest.approx(
            float(metrics["float32"][name]), rel=0.03, abs=3e-3
        ), name
