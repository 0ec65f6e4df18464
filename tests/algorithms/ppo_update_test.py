"""The update of algorithm ppo: in parts, on devices, and what it takes from a batch."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.algorithms import ppo, ppo_update, schedules, trajectory
from motif_jax.algorithms.registry import algorithm_of
from motif_jax.algorithms.trajectory import TrajectoryBatch
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.support import resources
from motif_jax.support.errors import UserError

pytestmark = pytest.mark.usefixtures("compiled_quickly")
STEPS, ROLLOUTS, WIDTH, ACTIONS = 6, 4, 5, 3


class Linear:
    """A policy and a value, linear in what is seen."""

    spec = EnvironmentSpec({"x": ArraySpec((WIDTH,), "float32")}, ACTIONS)
    fields = ("x",)

    def init(self, key: jax.Array) -> Any:
        policy, value = jax.random.split(key)
        return {
            "policy": jax.random.normal(policy, (WIDTH, ACTIONS)),
            "value": jax.random.normal(value, (WIDTH,)),
        }

    def frozen(self) -> Any:
        return {}

    def cropped(self, observation: Any) -> Any:
        return observation

    def prepare(self, params: Any) -> Any:
        return params

    def initial_state(self, batch_size: int) -> Any:
        return jnp.zeros((batch_size, 0))

    def apply(self, params: Any, observation: Any, state: Any, first: Any) -> Any:
        return observation["x"] @ params["policy"], observation["x"] @ params["value"], state


def config(**changes):
    made = resources.config("train_language_agent", "")
    made.batch_size, made.rollout = STEPS * ROLLOUTS, STEPS
    made.optimizer.learning_rate = 1e-2
    made.train_for_env_steps = 10_000
    made.algorithm.update({"minibatch_size": 12, "microbatch_size": 12, "broadcast_rows": 4, "epochs": 2})
    made.update_from_flattened_dict(changes)
    return made


def batch():
    rng = np.random.default_rng(0)
    shape = (STEPS, ROLLOUTS)
    x = jnp.asarray(rng.standard_normal((STEPS + 1, ROLLOUTS, WIDTH)), jnp.float32)
    last = np.zeros((STEPS + 1, ROLLOUTS), bool)
    last[3, 1] = True
    truncated = np.zeros(shape, bool)
    truncated[2, 1] = True
    terminated = rng.random(shape) < 0.2
    terminated[2:4, 1] = False
    first = np.zeros((STEPS + 1, ROLLOUTS), bool)
    first[0] = first[4, 1] = True
    return TrajectoryBatch(
        observation={"x": x},
        first=jnp.asarray(first),
        last=jnp.asarray(last),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape), jnp.int32),
        behaviour_log_prob=jnp.asarray(np.log(rng.uniform(0.2, 0.5, shape)), jnp.float32),
        behaviour_value=jnp.asarray(rng.standard_normal(shape), jnp.float32),
        parameter_version=jnp.zeros(shape, jnp.int32),
        reward=jnp.asarray(rng.standard_normal(shape), jnp.float32),
        intrinsic_reward=jnp.zeros(shape),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        initial_state=jnp.zeros((ROLLOUTS, 0)),
    )


def one_minibatch(micro):
    return {"algorithm.epochs": 1, "algorithm.minibatch_size": 24, "algorithm.microbatch_size": micro}


def made_update(settings, network=None):
    network, optimizer = network or Linear(), schedules.make_optimizer(settings.optimizer)
    state = ppo_update.make_state(network, optimizer, jax.random.key(0))
    return state, ppo_update.make_update(network, optimizer, settings)


@functools.cache
def compiled(changes):
    state, update = made_update(config(**dict(changes)))
    return state, jax.jit(update)


def run(made=None, times=1, **changes):
    state, update = compiled(tuple(changes.items()))
    for _ in range(times):
        state, metrics = update(state, made or batch())
    return state, metrics


def test_it_is_chosen_by_name_and_counts_what_it_learned_from():
    assert algorithm_of(config()) is ppo_update
    state, metrics = run()
    assert int(state.step) == 1
    # The final observation of the truncated episode is no step.
    assert int(state.env_steps[1]) == STEPS * ROLLOUTS - 1
    assert {"loss/policy", "loss/value", "policy/entropy", "policy/kl", "optimizer/gradient_norm"} <= set(
        metrics
    )
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize("broadcast", [False, True])
def test_parts_of_a_minibatch_give_what_the_whole_gives(broadcast):
    switch = {"compat.glam_value_broadcast": broadcast}
    whole, _ = run(**switch)
    parts, _ = run(**switch, **{"algorithm.microbatch_size": 3})
    for one, other in zip(jax.tree.leaves(whole.params), jax.tree.leaves(parts.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_what_a_task_takes_away_counts_only_where_it_is_to():
    plain = batch()
    none = plain._replace(reward=jnp.maximum(plain.reward, 0))
    kept, _ = run(plain, **{"algorithm.positive_reward": False})
    floored, _ = run(plain)
    already, _ = run(none, **{"algorithm.positive_reward": False})
    np.testing.assert_array_equal(floored.params["policy"], already.params["policy"])
    assert not np.allclose(floored.params["policy"], kept.params["policy"], atol=1e-4)


def test_a_truncated_episode_goes_on_in_the_value_of_its_last_observation():
    plain = batch()
    lower = plain._replace(behaviour_value=plain.behaviour_value.at[3, 1].add(-50.0))
    params = [run(made)[0].params["policy"] for made in (plain, lower)]
    assert not np.allclose(*params, atol=1e-3)
    # Its own row is in no loss: only what bootstraps from it moves.
    ended = [made._replace(truncated=jnp.zeros_like(made.truncated)) for made in (plain, lower)]
    ended = [made._replace(terminated=made.terminated.at[2, 1].set(True)) for made in ended]
    params = [run(made)[0].params["policy"] for made in ended]
    np.testing.assert_allclose(*params, rtol=1e-6)


@pytest.mark.slow
def test_devices_agree_and_learn_from_all_rows():
    """Two devices with two rollouts each: replicas stay equal, and losses count every row once."""
    made = batch()
    state, update = made_update(config(**one_minibatch(6)))
    one, metrics = jax.jit(update)(state, made)
    halves = jax.tree.map(lambda x: jnp.stack(jnp.split(x, 2, axis=1)), made._replace(initial_state=()))
    halves = halves._replace(initial_state=jnp.zeros((2, 2, 0)))
    mapped = jax.jit(jax.vmap(lambda s, b: update(s, b, axis_name="d"), in_axes=(None, 0), axis_name="d"))
    two, both = mapped(state, halves)
    for whole, parts in zip(jax.tree.leaves(one.params), jax.tree.leaves(two.params), strict=True):
        np.testing.assert_array_equal(parts[0], parts[1])
        np.testing.assert_allclose(parts[0], whole, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both["loss/policy"][0], metrics["loss/policy"], rtol=1e-4)
    assert two.env_steps.tolist() == [one.env_steps.tolist()] * 2


def test_an_update_ends_where_the_policy_is_too_far_from_the_one_that_played():
    """The minibatches before the limit are taken as without one, the others are not even looked at."""
    far, _ = run()
    never, metrics = run(**{"algorithm.kl_limit": 1e9})
    assert metrics["policy/minibatches_taken"] == 1
    for one, other in zip(jax.tree.leaves(far.params), jax.tree.leaves(never.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    stopped, metrics = run(**{"algorithm.kl_limit": 1e-9})
    begun, _ = compiled((("algorithm.kl_limit", 1e-9),))
    assert metrics["policy/minibatches_taken"] == 0
    assert int(stopped.step) == 1
    for one, other in zip(jax.tree.leaves(begun.params), jax.tree.leaves(stopped.params), strict=True):
        np.testing.assert_array_equal(one, other)


class Leaky(Linear):
    """Remembers half of what it has seen of an episode."""

    def initial_state(self, batch_size: int) -> Any:
        return jnp.zeros((batch_size, WIDTH))

    def apply(self, params: Any, observation: Any, state: Any, first: Any) -> Any:
        def step(state, row):
            x, begins = row
            state = 0.5 * jnp.where(begins[:, None], 0.0, state) + x
            return state, state

        state, seen = jax.lax.scan(step, state, (observation["x"], first))
        return seen @ params["policy"], seen @ params["value"], state


def played(made, network, params):
    """The batch as this network would have played it, from states that are not zero."""
    start = jnp.asarray(np.random.default_rng(5).standard_normal((ROLLOUTS, WIDTH)), jnp.float32)
    logits, value, _ = network.apply(params, made.observation, start, made.first)
    log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits[:-1]), made.action[..., None], axis=-1)[..., 0]
    return made._replace(initial_state=start, behaviour_log_prob=log_prob, behaviour_value=value[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 6])
def test_sequences_begin_with_the_states_that_they_were_played_from(length):
    """Before the first step of learning the policy is the one that played, however rollouts are cut; and a gradient is that of all rows."""
    network = Leaky()
    settings = config(**one_minibatch(12), **{"algorithm.recurrence": length})
    ppo_update.check(settings)
    state, update = made_update(settings, network)
    made = played(batch(), network, state.params)
    _, metrics = jax.jit(update)(state, made)
    assert metrics["policy/ratio_min"] == pytest.approx(1, abs=1e-5)
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-5)

    def loss(params):
        """The same loss row by row: parameters in a sequence alone, states before it as they were."""
        _, before, _ = network.apply(state.params, made.observation, made.initial_state, made.first)
        starts, states = made.initial_state, []
        for begin in range(0, STEPS, length):
            rows = {"x": made.observation["x"][begin : begin + length]}
            states.append(network.apply(params, rows, starts, made.first[begin : begin + length])[:2])
            _, _, starts = network.apply(state.params, rows, starts, made.first[begin : begin + length])
        logits, value = (jnp.concatenate(parts) for parts in zip(*states, strict=True))
        discount = 0.99 * (1.0 - trajectory.done(made))
        reward = jnp.clip(20.0 * jnp.maximum(made.reward, 0), -20, 20)
        target = ppo.targets(made.behaviour_value, before[-1], reward, discount, made.last[:-1], 0.99)
        valid = trajectory.recorded(made)
        given = (
            made.action,
            made.behaviour_log_prob,
            made.behaviour_value,
            target.advantage,
            target.value,
            valid,
        )
        samples = ppo.Samples(*(x.reshape(-1) for x in given))
        rows = ppo.loss_rows(logits.reshape(-1, ACTIONS), value.reshape(-1), samples, 0.2, 0.2)
        return jnp.sum(jnp.where(samples.valid, ppo.combine(rows, 0.5, 0.01), 0)) / jnp.sum(valid)

    norm = optax.tree.norm(jax.grad(loss)(state.params))
    assert metrics["optimizer/gradient_norm"] == pytest.approx(float(norm), rel=1e-4)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("algorithm.minibatch_size", 7, "algorithm.minibatch_size=7.*batch_size=24"),
        ("algorithm.microbatch_size", 5, "algorithm.microbatch_size=5.*minibatch_size=12"),
        ("algorithm.recurrence", 4, "algorithm.recurrence=4.*rollout=6"),
    ],
)
def test_bad_values_are_one_line(key, value, said):
    with pytest.raises(UserError, match=said):
        ppo_update.check(config(**{key: value}))


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
    logits = jax.nn.log_softmax(made.observation["x"][:-1] @ start["policy"])
    reference = np.take_along_axis(np.asarray(logits), np.asarray(made.action)[..., None], -1)[..., 0]
    ratio = np.asarray(made.behaviour_log_prob) - reference
    there = ~np.asarray(made.last[:-1])
    assert float(metrics["reference/kl"]) == pytest.approx(ratio[there].mean(), rel=1e-5)
    error = np.clip(ratio[there].mean() - 1.0, -0.2, 0.2)
    assert float(found.kl_coefficient) == pytest.approx(0.5 * (1 + error * there.sum() / 100), rel=1e-5)
    jax.tree.map(np.testing.assert_array_equal, found.reference, start)
    settings = config(**unclipped)
    scale = settings.reward.extrinsic_scale  # rewards are multiplied by it, the penalty is not
    settings.algorithm.positive_reward = False
    paid = made._replace(
        reward=jnp.maximum(made.reward, 0.0) - 0.5 / scale * jnp.asarray(np.where(there, ratio, 0.0))
    )
    plain = state._replace(reference=(), kl_coefficient=())
    alone, _ = jax.jit(made_update(settings)[1])(plain, paid)
    for one, other in zip(jax.tree.leaves(found.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
