"""What a language agent learns from: scores, losses and gradients are those of every action as a row of its own, on any devices."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.algorithms import ppo, ppo_update, trajectory
from motif_jax.algorithms.schedules import RateState
from motif_jax.benchmarks import language_update
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.devices.sharding import Sharded

PROMPT, TOLERANCE = 14, 1e-5


@functools.cache
def subject() -> Any:
    """Settings, agent and batch: 8 samples of which prompts differ in length, one ends its episode."""
    chosen = language_update.options()
    chosen.update({"model": "tiny_t5", "prompt_tokens": PROMPT, "candidates": 4, "candidate_tokens": 3})
    chosen.update({"rollout": 2, "batch_size": 8, "minibatch": 8, "microbatch": 1})
    network = language_update.agent(chosen, 1)
    batch = language_update.batch(chosen, network.model.config.vocab_size, 1)
    lengths = np.random.default_rng(2).integers(3, PROMPT, (3, 4, 1))
    tokens = np.where(np.arange(PROMPT) < lengths, batch.observation["tokens"], -1)
    ends = np.array([[False, True, False, False], [False] * 4])
    return chosen, network, batch._replace(observation={"tokens": tokens}, terminated=ends)


def as_it_is() -> optax.GradientTransformationExtraArgs:
    """An optimiser whose step is the gradient."""
    state = (RateState(jnp.zeros((), jnp.int32), jnp.zeros(())),)
    return optax.GradientTransformationExtraArgs(lambda params: state, lambda g, s, params, **more: (g, s))


@functools.cache
def apart() -> Any:
    """(parameters, terms of the loss, gradient) of all rows by themselves, in one piece."""
    chosen, network, batch = subject()
    other = language_update.agent(chosen, 1, language_update.Apart)
    params, config = network.init(jax.random.key(0)), language_update.training_config(chosen)
    flat = lambda x: jnp.swapaxes(jnp.asarray(x), 0, 1).reshape(-1, *x.shape[2:])  # noqa: E731
    reward = jnp.asarray(batch.reward) * config.reward.extrinsic_scale
    tokens = batch.observation["tokens"]
    bootstrap = jax.jit(other.rows)(params, jnp.asarray(tokens[-1]))[1]
    discount = config.algorithm.gamma * (1.0 - trajectory.done(batch))
    found = ppo.targets(
        batch.behaviour_value, bootstrap, reward, discount, batch.last[:-1], config.algorithm.gae_lambda
    )
    samples = ppo.Samples(
        flat(batch.action), flat(batch.behaviour_log_prob), flat(batch.behaviour_value), flat(found.advantage), flat(found.value),
        jnp.ones(8, bool),
    )  # fmt: skip

    def loss(params: Any) -> Any:
        logits, value = other.rows(params, flat(tokens[:-1]))
        rows = ppo.loss_rows(logits, value, samples, 0.2, 0.2)
        return ppo.combine(rows, 0.5, 0.01).mean(), rows

    gradient, rows = jax.jit(jax.grad(loss, has_aux=True))(params)
    return params, rows, gradient


@pytest.mark.slow
@pytest.mark.parametrize("devices", [4, "split"])
def test_losses_and_gradients_are_those_of_every_action_as_a_row_on_any_devices(devices: Any) -> None:
    chosen, network, batch = subject()
    params, rows, gradient = apart()
    config, optimizer = language_update.training_config(chosen), as_it_is()
    update = ppo_update.make_update(network, optimizer, config)
    parallel: DataParallel = DataParallel(jax.devices()[:4])
    if devices == "split":
        parallel = Sharded({"data": 1, "fsdp": 2, "tensor": 2}, jax.devices()[:4])
    state = ppo_update.make_state(network, optimizer, jax.random.key(0))
    begun = jax.device_get(params)
    state = state._replace(params=begun, key=jax.random.PRNGKey(0))
    program = parallel.wrap(functools.partial(update, axis_name=AXIS))
    after, metrics = program(parallel.replicate(state), parallel.put_batch(batch, trajectory.BATCH_AXES))
    for one, before, wanted in zip(
        jax.tree.leaves(after.params), jax.tree.leaves(begun), jax.tree.leaves(gradient), strict=True
    ):
        np.testing.assert_allclose(
            one - before, wanted, atol=TOLERANCE * max(1.0, float(np.abs(wanted).max()))
        )
    np.testing.assert_allclose(metrics["loss/policy"], rows.policy.mean(), rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(metrics["loss/value"], rows.value.mean(), rtol=TOLERANCE)
    np.testing.assert_allclose(metrics["policy/entropy"], rows.entropy.mean(), rtol=TOLERANCE)
