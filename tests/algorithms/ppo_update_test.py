"""The update of algorithm ppo: in parts, on devices, and what it takes from a batch."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.algorithms import losses, ppo, ppo_update, schedules, trajectory
from motif_jax.sections.agents import agent_config
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from tests.agents import FLAT_SPEC, flat_network, random_batch

pytestmark = pytest.mark.usefixtures("compiled_quickly")
STEPS, ROLLOUTS, ACTIONS = 6, 4, FLAT_SPEC.num_actions
FLAT, RECURRENT = flat_network(core="none"), flat_network()


def config(**changes):
    made = resources.config("train_language_agent", "")
    made.batch_size, made.rollout = STEPS * ROLLOUTS, STEPS
    made.optimizer.learning_rate = 1e-2
    made.train_for_env_steps = 10_000
    made.algorithm.update({"minibatch_size": 12, "microbatch_size": 12, "broadcast_rows": 4, "epochs": 2})
    made.update_from_flattened_dict(changes)
    return agent_config(made)


def batch(network=FLAT):
    return jax.tree.map(jnp.asarray, random_batch(FLAT_SPEC, network.state_size, STEPS, ROLLOUTS, seed=3))


def one_minibatch(micro):
    return {"algorithm.epochs": 1, "algorithm.minibatch_size": 24, "algorithm.microbatch_size": micro}


def made_update(settings, network=FLAT):
    optimizer = schedules.make_optimizer(settings.optimizer)
    state = ppo_update.make_state(network, optimizer, jax.random.key(0))
    return state, ppo_update.make_update(network, optimizer, settings)


@pytest.mark.slow
@pytest.mark.parametrize("broadcast", [False, True])
def test_parts_of_a_minibatch_give_what_the_whole_gives(broadcast):
    switch = {"compat.glam_value_broadcast": broadcast}
    found = []
    for micro in (12, 3):
        state, update = made_update(config(**switch, **{"algorithm.microbatch_size": micro}))
        found.append(jax.jit(update)(state, batch())[0].params)
    chex.assert_trees_all_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_devices_agree_and_learn_from_all_rows():
    made = batch()
    state, update = made_update(config(**one_minibatch(6)))
    one, metrics = jax.jit(update)(state, made)
    halves = jax.tree.map(
        lambda x, axis: jnp.stack(jnp.split(x, 2, axis)),
        made,
        jax.tree.broadcast(trajectory.BATCH_AXES, made),
    )
    mapped = jax.jit(jax.vmap(lambda s, b: update(s, b, axis_name="d"), in_axes=(None, 0), axis_name="d"))
    two, both = mapped(state, halves)
    first, second = (jax.tree.map(lambda leaf, n=n: leaf[n], two.params) for n in range(2))
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_close(first, one.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both["loss/policy"][0], metrics["loss/policy"], rtol=1e-4)
    assert two.env_steps.tolist() == [one.env_steps.tolist()] * 2


@pytest.mark.slow
def test_sequences_begin_with_the_states_that_they_were_played_from():
    """Before the first step of learning the policy is the one that played, however rollouts are cut; and a gradient is that of all rows."""
    network, length = RECURRENT, 3
    settings = config(**one_minibatch(12), **{"algorithm.recurrence": length})
    ppo_update.check(settings)
    state, update = made_update(settings, network)
    made = batch(network)
    logits, value, _ = network.apply(state.params, made.observation, made.initial_state, made.first)
    log_prob = losses.log_probability(logits[:-1], made.action)
    made = made._replace(behaviour_log_prob=log_prob, behaviour_value=value[:-1])
    _, metrics = jax.jit(update)(state, made)
    assert [metrics[f"policy/ratio_{end}"] for end in ("min", "max")] == pytest.approx([1, 1], abs=1e-5)

    def loss(params):
        """The same loss row by row: parameters in a sequence alone, states before it as they were."""
        _, before, _ = network.apply(state.params, made.observation, made.initial_state, made.first)
        starts, states = made.initial_state, []
        for begin in range(0, STEPS, length):
            rows = {name: field[begin : begin + length] for name, field in made.observation.items()}
            states.append(network.apply(params, rows, starts, made.first[begin : begin + length])[:2])
            _, _, starts = network.apply(state.params, rows, starts, made.first[begin : begin + length])
        logits, value = (jnp.concatenate(parts) for parts in zip(*states, strict=True))
        discount = 0.99 * (1.0 - trajectory.done(made))
        reward = jnp.clip(20.0 * jnp.maximum(made.reward, 0), -20, 20)
        target = ppo.targets(made.behaviour_value, before[-1], reward, discount, made.last[:-1], 0.99)
        valid = trajectory.recorded(made)
        given = (made.action, log_prob, made.behaviour_value, target.advantage, target.value, valid)
        samples = ppo.Samples(*(x.reshape(-1) for x in given))
        rows = ppo.loss_rows(logits.reshape(-1, ACTIONS), value.reshape(-1), samples, 0.2, 0.2)
        return jnp.sum(jnp.where(samples.valid, ppo.combine(rows, 0.5, 0.01), 0)) / jnp.sum(valid)

    norm = optax.tree.norm(jax.grad(loss)(state.params))
    assert metrics["optimizer/gradient_norm"] == pytest.approx(float(norm), rel=1e-4)


def test_bad_values_are_one_line():
    for key, value, said in (
        ("minibatch_size", 7, "algorithm.minibatch_size=7.*batch_size=24"),
        ("microbatch_size", 5, "algorithm.microbatch_size=5.*minibatch_size=12"),
        ("recurrence", 4, "algorithm.recurrence=4.*rollout=6"),
    ):
        with pytest.raises(UserError, match=said):
            ppo_update.check(config(**{f"algorithm.{key}": value}))


@pytest.mark.slow
def test_what_is_far_from_the_start_is_paid_less():
    """By the divergence of single actions, as if the rewards had been so; the coefficient goes to its target by the mean."""
    kl = {"algorithm.kl.coefficient": 0.5, "algorithm.kl.target": 1.0, "algorithm.kl.horizon": 100}
    unclipped = {"reward.extrinsic_clip": 1e6}
    settings, made = config(**kl, **unclipped), batch()
    state, update = made_update(settings)
    state = ppo_update.with_reference(state, settings)
    start = jax.device_get(state.reference)
    state = state._replace(params=jax.tree.map(lambda x: 2 * x, state.params))
    found, metrics = jax.jit(update)(state, made)
    logits, *_ = FLAT.apply(start, made.observation, made.initial_state, made.first)
    reference = losses.log_probability(logits[:-1], made.action)
    ratio = np.asarray(made.behaviour_log_prob - reference)
    there = ~np.asarray(made.last[:-1])
    assert float(metrics["reference/kl"]) == pytest.approx(ratio[there].mean(), rel=1e-5)
    error = np.clip(ratio[there].mean() - 1.0, -0.2, 0.2)
    assert float(found.kl_coefficient) == pytest.approx(0.5 * (1 + error * there.sum() / 100), rel=1e-5)
    chex.assert_trees_all_equal(found.reference, start)
    settings = config(**unclipped, **{"algorithm.positive_reward": False})
    scale = settings.reward.extrinsic_scale  # rewards are multiplied by it, the penalty is not
    reward = jnp.maximum(made.reward, 0.0) - 0.5 / scale * jnp.where(there, ratio, 0.0)
    plain = state._replace(reference=(), kl_coefficient=())
    alone, _ = jax.jit(made_update(settings)[1])(plain, made._replace(reward=reward))
    chex.assert_trees_all_close(found.params, alone.params, rtol=1e-4, atol=1e-5)
