"""The update of algorithm ppo: in parts, on devices, its limit, its penalty, and what it
refuses.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core.compat import Compat
from motif_jax.core.errors import UserError
from motif_jax.nets import distributions
from motif_jax.rl.algorithms import ppo, trajectory
from motif_jax.rl.algorithms.config import Kl, Ppo
from tests.rl.algorithms.linear_updates import (
    REWARD,
    ROLLOUTS,
    STEPS,
    Linear,
    batch,
    change,
    config,
    start,
)
from tests.sets import extra

# One step of learning from all rows of a batch.
WHOLE = Ppo(minibatch_size=24, microbatch_size=24, epochs=1, broadcast_rows=4)
UNSCALED = dataclasses.replace(REWARD, extrinsic_scale=1.0, extrinsic_clip=1e6)
NETWORK: Any = Linear("signal", "legal")


def updated(
    settings: Ppo, rollouts: Any = None, compat: Compat | None = None, **changes: Any
) -> tuple[Any, Any]:
    state, update = start(config(settings, compat, **changes))
    return update(state, batch() if rollouts is None else rollouts)


@pytest.mark.slow
def test_devices_agree_and_learn_from_all_rows() -> None:
    rollouts = jax.tree.map(jnp.asarray, batch(3))
    state, update = start(config(dataclasses.replace(WHOLE, microbatch_size=6)))
    one, metrics = update(state, rollouts)
    axes = jax.tree.broadcast(trajectory.BATCH_AXES, rollouts)
    halves = jax.tree.map(lambda x, axis: jnp.stack(jnp.split(x, 2, axis)), rollouts, axes)
    mapped = jax.vmap(lambda s, b: update(s, b, axis_name="d"), in_axes=(None, 0), axis_name="d")
    two, both = mapped(state, halves)
    first, second = (jax.tree.map(lambda leaf, n=n: leaf[n], two.params) for n in range(2))
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_close(first, one.params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(both["loss/policy"][0], metrics["loss/policy"], rtol=1e-4)
    assert two.env_steps.tolist() == [one.env_steps.tolist()] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "compat", [Compat(), Compat(glam_value_broadcast=True)], ids=["ours", "published"]
)
def test_parts_of_a_minibatch_add_up_to_it(compat: Compat) -> None:
    settings = dataclasses.replace(WHOLE, minibatch_size=12, microbatch_size=12, epochs=2)
    state, _ = start(config(settings, compat))
    at_once, _ = updated(settings, compat=compat)
    in_parts, _ = updated(dataclasses.replace(settings, microbatch_size=3), compat=compat)
    np.testing.assert_allclose(
        change(state, at_once), change(state, in_parts), rtol=1e-4, atol=1e-6
    )


@pytest.mark.extra
def test_the_published_broadcast_changes_the_value_loss_alone() -> None:
    _, mended = updated(WHOLE)
    _, published = updated(WHOLE, compat=Compat(glam_value_broadcast=True))
    assert published["loss/value"] != pytest.approx(float(mended["loss/value"]), rel=1e-3)
    assert published["loss/policy"] == pytest.approx(float(mended["loss/policy"]), rel=1e-5)


@pytest.mark.slow
def test_a_truncated_episode_bootstraps_from_its_last_observation() -> None:
    rollouts = batch(padding=0.0)
    final = np.asarray(rollouts.last[:-1])
    lower = rollouts._replace(
        behaviour_value=rollouts.behaviour_value - 50 * final.astype(np.float32)
    )
    norms = [
        float(updated(WHOLE, rows)[1]["optimizer/gradient_norm"]) for rows in (rollouts, lower)
    ]
    assert norms[1] != pytest.approx(norms[0], rel=1e-2)


def test_a_terminated_episode_ignores_its_last_observations_value() -> None:
    rollouts = batch(padding=0.0)
    rollouts = rollouts._replace(
        terminated=rollouts.terminated | rollouts.truncated,
        truncated=np.zeros_like(rollouts.truncated),
    )
    final = np.asarray(rollouts.last[:-1])
    lower = rollouts._replace(
        behaviour_value=rollouts.behaviour_value - 50 * final.astype(np.float32)
    )
    norms = [
        float(updated(WHOLE, rows)[1]["optimizer/gradient_norm"]) for rows in (rollouts, lower)
    ]
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)


@pytest.mark.extra
def test_losses_fall_over_updates_of_one_batch() -> None:
    state, update = start(config(dataclasses.replace(WHOLE, clip_value=1e3)))
    rollouts = batch(3)
    # No target moves with the value that is learned.
    rollouts = rollouts._replace(terminated=np.ones_like(rollouts.terminated))
    _, before = update(state, rollouts)
    for _ in range(30):
        state, after = update(state, rollouts)
    assert after["loss/value"] < before["loss/value"]
    assert after["loss/policy"] < before["loss/policy"]


def test_advantages_are_described_before_they_are_normalised() -> None:
    _, normalised = updated(dataclasses.replace(WHOLE, normalise_advantage=True))
    _, plain = updated(dataclasses.replace(WHOLE, normalise_advantage=False))
    for name in ("advantage/mean", "advantage/std"):
        np.testing.assert_allclose(normalised[name], plain[name], rtol=1e-6)
    assert normalised["loss/policy"] != plain["loss/policy"]


TWICE = dataclasses.replace(WHOLE, minibatch_size=12, microbatch_size=12, epochs=2)


@pytest.mark.extra
def test_a_distant_limit_takes_all_minibatches() -> None:
    state, _ = start(config(TWICE))
    without, _ = updated(TWICE)
    within, metrics = updated(dataclasses.replace(TWICE, kl_limit=1e9))
    assert metrics["policy/minibatches_taken"] == 1
    np.testing.assert_allclose(change(state, without), change(state, within), rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_a_limit_that_is_exceeded_takes_no_minibatch() -> None:
    state, _ = start(config(TWICE))
    stopped, metrics = updated(dataclasses.replace(TWICE, kl_limit=1e-9))
    assert metrics["policy/minibatches_taken"] == 0
    assert int(stopped.step) == 11
    assert not change(state, stopped).any()


def played_by(state: Any, rollouts: Any) -> Any:
    """The batch as if the network of `state` had played it."""
    rows = (rollouts.observation, rollouts.initial_state, rollouts.first)
    logits, value, _ = NETWORK.apply(state.params, *rows)
    log_prob = jnp.take_along_axis(
        jax.nn.log_softmax(logits[:-1]), rollouts.action[..., None], axis=-1
    )[..., 0]
    return rollouts._replace(behaviour_log_prob=log_prob, behaviour_value=value[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, extra(6)])
def test_sequences_begin_with_the_states_that_they_were_played_from(length: int) -> None:
    """Before the first step of learning the policy is the one that played, however rollouts are
    cut.
    """
    settings = dataclasses.replace(WHOLE, recurrence=length, microbatch_size=12)
    state, update = start(config(settings))
    _, metrics = update(state, played_by(state, batch()))
    assert metrics["policy/ratio_min"] == pytest.approx(1, abs=1e-5)
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, extra(6)])
def test_the_gradient_runs_back_through_a_sequence(length: int) -> None:
    settings = dataclasses.replace(
        WHOLE, recurrence=length, microbatch_size=12, normalise_advantage=False
    )
    state, update = start(config(settings, reward=UNSCALED))
    rollouts = played_by(state, batch(padding=0.0))
    _, metrics = update(state, rollouts)

    def loss(params: Any) -> Any:
        """The loss of rows whose sequences start from the states of `state`."""
        starts = rollouts.initial_state
        outputs = []
        for begin in range(0, STEPS, length):
            rows = {name: x[begin : begin + length] for name, x in rollouts.observation.items()}
            first = rollouts.first[begin : begin + length]
            outputs.append(NETWORK.apply(params, rows, starts, first)[:2])
            starts = NETWORK.apply(state.params, rows, starts, first)[2]
        logits, value = (jnp.concatenate(parts) for parts in zip(*outputs, strict=True))
        _, values, _ = NETWORK.apply(
            state.params, rollouts.observation, rollouts.initial_state, rollouts.first
        )
        intrinsic = rollouts.intrinsic_reward / np.sqrt(rollouts.observation["count"][:-1])
        reward = 0.7 * rollouts.reward + 0.4 * intrinsic
        discount = settings.gamma * (1.0 - trajectory.done(rollouts))
        target = ppo.targets(
            rollouts.behaviour_value,
            values[-1],
            reward,
            discount,
            rollouts.last[:-1],
            settings.gae_lambda,
        )
        valid = trajectory.recorded(rollouts)
        columns = (
            rollouts.action,
            rollouts.behaviour_log_prob,
            rollouts.behaviour_value,
            target.advantage,
        )
        samples = ppo.Samples(*(jnp.ravel(x) for x in (*columns, target.value, valid)))
        logits = logits.reshape(-1, logits.shape[-1])
        rows = ppo.step_losses(
            distributions.categorical_log_prob(logits, samples.action),
            distributions.categorical_entropy(logits),
            value.ravel(),
            samples,
            settings.clip_ratio,
            settings.clip_value,
        )
        terms = ppo.combine(rows, settings.value_coefficient, settings.entropy_coefficient)
        return jnp.sum(jnp.where(samples.valid, terms, 0)) / jnp.sum(valid)

    norm = optax.tree.norm(jax.grad(loss)(state.params))
    assert metrics["optimizer/gradient_norm"] == pytest.approx(float(norm), rel=1e-4)


KL = Kl(coefficient=0.5, target=1.0, horizon=100)
PENALISED = dataclasses.replace(WHOLE, kl=KL, positive_reward=False)


def divergence_of_actions(state: Any, rollouts: Any) -> np.ndarray:
    """Log-probability of each action as it was played over that of the reference."""
    before = np.zeros((STEPS * ROLLOUTS, 2), np.float32)
    rows = {name: x[:-1].reshape(1, -1, *x.shape[2:]) for name, x in rollouts.observation.items()}
    logits = NETWORK.apply(state.reference, rows, before, rollouts.first[:-1].reshape(1, -1))[0]
    logits = jax.nn.log_softmax(logits.reshape(STEPS, ROLLOUTS, -1))
    reference = jnp.take_along_axis(logits, rollouts.action[..., None], axis=-1)[..., 0]
    return np.asarray(rollouts.behaviour_log_prob - reference)


@pytest.mark.slow
def test_the_penalty_lowers_rewards_by_each_actions_divergence() -> None:
    state, update = start(config(PENALISED, reward=UNSCALED))
    rollouts = batch()
    state = state._replace(params=jax.tree.map(lambda x: 1.3 * x, state.params))
    recorded = np.asarray(trajectory.recorded(rollouts))
    # The task's reward has the coefficient 0.7, the penalty has none.
    penalty = 0.5 / 0.7 * np.where(recorded, divergence_of_actions(state, rollouts), 0)
    lower = rollouts._replace(reward=(rollouts.reward - penalty).astype(np.float32))
    unpenalised = dataclasses.replace(PENALISED, kl=Kl())
    _, plain_update = start(config(unpenalised, reward=UNSCALED))
    after, _ = update(state, rollouts)
    alone, _ = plain_update(state._replace(reference=(), kl_coefficient=()), lower)
    np.testing.assert_allclose(change(state, after), change(state, alone), rtol=1e-3, atol=1e-5)


@pytest.mark.extra
def test_the_penaltys_coefficient_moves_towards_its_target() -> None:
    state, update = start(config(PENALISED, reward=UNSCALED))
    rollouts = batch()
    recorded = np.asarray(trajectory.recorded(rollouts))
    mean = divergence_of_actions(state, rollouts)[recorded].mean()
    after, metrics = update(state, rollouts)
    assert metrics["reference/kl"] == pytest.approx(mean, rel=1e-4)
    error = np.clip(mean - 1.0, -0.2, 0.2)
    assert float(after.kl_coefficient) == pytest.approx(
        0.5 * (1 + error * recorded.sum() / 100), rel=1e-5
    )


def test_the_reference_keeps_the_first_parameters() -> None:
    state, update = start(config(PENALISED, reward=UNSCALED))
    after, _ = update(state, batch())
    chex.assert_trees_all_equal(after.reference, state.params)


def test_the_penalty_is_refused_for_a_network_with_a_memory() -> None:
    plan = config(PENALISED)
    with pytest.raises(
        UserError, match=r"config\.algorithm\.kl\.coefficient=0\.5: must be 0 with a network"
    ):
        ppo.PpoAlgorithm.check(plan, NETWORK)
