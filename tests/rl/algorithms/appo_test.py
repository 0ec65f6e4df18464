"""What the settings of APPO's update do, and what it leaves alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.compat import Compat
from motif_jax.core.errors import UserError
from motif_jax.nets.agent import rescale_value_head
from motif_jax.rl.algorithms import appo, trajectory
from motif_jax.rl.algorithms.appo import AppoAlgorithm, ValueStatistics
from motif_jax.rl.algorithms.config import Appo
from tests.agents import FLAT_SPEC, random_batch
from tests.rl.algorithms.linear_updates import REWARD, Linear, batch, change, config, start

NETWORK: Any = Linear("signal", "legal")


def statistics(mean: float, std: float) -> ValueStatistics:
    return ValueStatistics(jnp.float32(mean), jnp.float32(std**2), jnp.float32(1))


def losses_of(
    settings: Appo, state: Any, rollouts: Any, compat: Compat | None = None
) -> tuple[Any, Any]:
    """The network's output on a batch with the task's reward, and the terms of the loss."""
    plan = config(settings, compat)
    output = appo.run_network(NETWORK, plan, state, rollouts, rollouts.reward)
    return output, appo.compute_loss(settings, state, rollouts, output, None)[1]


def test_step_limits_as_terminal_leave_no_bootstrap() -> None:
    batch = random_batch(FLAT_SPEC, 16, 6, 8, seed=2)
    assert batch.truncated.any()
    done = np.asarray(trajectory.done(batch))
    np.testing.assert_array_equal(done, batch.terminated)
    without = batch._replace(last=np.zeros_like(batch.last))
    np.testing.assert_array_equal(trajectory.done(without), batch.terminated | batch.truncated)


def test_statistics_of_no_valid_row_stay() -> None:
    before = appo.first_statistics()
    assert appo.moved(before, jnp.ones(3), jnp.zeros(3, bool), 0.5) == before


def test_first_statistics_are_those_of_the_batch() -> None:
    before = appo.first_statistics()
    after = appo.moved(before, jnp.array([1.0, 3.0]), jnp.ones(2, bool), 0.5)
    np.testing.assert_allclose(appo.moments(after), (2, 1))


@pytest.mark.slow
def test_rows_too_old_have_no_loss_but_normalise_advantages() -> None:
    state, update = start(config(Appo(max_policy_lag=5)))
    rollouts = batch()
    old = rollouts._replace(parameter_version=np.full_like(rollouts.parameter_version, 5))
    partly_old = rollouts._replace(
        parameter_version=np.where(np.arange(4) < 2, 5, 6) * np.ones((6, 1), np.int32)
    )
    after, metrics = update(state, old)
    _, partly = update(state, partly_old)
    assert metrics["batch/valid_share"] == 0
    assert metrics["loss/total"] == 0
    assert not change(state, after).any()
    assert 0.2 < partly["batch/valid_share"] < 0.8
    np.testing.assert_allclose(partly["advantage/std"], metrics["advantage/std"], rtol=1e-6)


@pytest.mark.parametrize("exploration", ["none", "entropy", "symmetric_kl"])
def test_the_exploration_loss_equals_its_formula(exploration: str) -> None:
    settings = Appo(exploration=exploration, exploration_coefficient=0.1, max_policy_lag=100)
    state = start(config(Appo()))[0]
    rollouts = batch()
    output, terms = losses_of(settings, state, rollouts)
    p = np.asarray(jax.nn.softmax(output.policy_outputs))
    legal = rollouts.observation["legal"][:-1] != 0
    valid = np.asarray(trajectory.recorded(rollouts))
    log_p = np.log(np.where(legal, p, 1))
    uniform = legal / legal.sum(-1, keepdims=True)
    log_uniform = np.log(np.where(legal, uniform, 1))
    expected = {
        "none": np.zeros(valid.shape),
        "entropy": (p * log_p).sum(-1),
        "symmetric_kl": 0.5 * ((p - uniform) * (log_p - log_uniform)).sum(-1),
    }[exploration]
    np.testing.assert_allclose(terms["loss/exploration"], 0.1 * expected[valid].mean(), rtol=1e-4)


def test_an_update_takes_a_step_per_minibatch_and_epoch() -> None:
    state, update = start(config(Appo(epochs=3, minibatches=2, max_policy_lag=100)))
    after, _ = update(state, batch())
    assert int(after.opt_state[1].count) == 6
    assert int(after.step) == 11


def test_minibatches_depend_on_the_key() -> None:
    state, update = start(config(Appo(epochs=3, minibatches=2, max_policy_lag=100)))
    after, _ = update(state, batch())
    after_with_other_key, _ = update(state._replace(key=jax.random.key(5)), batch())
    assert not np.array_equal(change(state, after), change(state, after_with_other_key))


def test_one_epoch_of_one_minibatch_draws_nothing() -> None:
    state, update = start(config(Appo(max_policy_lag=100)))
    after, _ = update(state, batch())
    np.testing.assert_array_equal(jax.random.key_data(after.key), jax.random.key_data(state.key))


def test_the_published_bootstrap_moves_the_last_target_of_running_episodes() -> None:
    settings = Appo(gamma=0.9, max_policy_lag=100)
    state = start(config(Appo()))[0]
    rollouts = batch()
    rollouts = rollouts._replace(
        last=np.zeros_like(rollouts.last), truncated=np.zeros_like(rollouts.truncated)
    )
    plain, _ = losses_of(settings, state, rollouts)
    published, _ = losses_of(settings, state, rollouts, Compat(vtrace_bootstrap=True))
    running = ~np.asarray(rollouts.terminated[-1])
    moved = np.abs(plain.targets.value - published.targets.value)[-1]
    assert (moved[running] > 0).all()
    assert (moved[~running] == 0).all()


def test_popart_keeps_the_values_while_their_scale_moves() -> None:
    settings = Appo(value_normalisation="popart", value_statistics_rate=0.5, max_policy_lag=100)
    moved = np.abs(value_changes(settings))
    # Adam moves a parameter by 0.01.
    assert moved.max() < 0.5


def test_running_statistics_move_the_values_with_their_scale() -> None:
    settings = Appo(value_normalisation="running", value_statistics_rate=0.5, max_policy_lag=100)
    assert np.abs(value_changes(settings)).max() > 1


def value_changes(settings: Appo) -> np.ndarray:
    """How far an update with rewards of about 50 a step moves the values of its own batch, in units
    of reward.
    """
    unclipped = dataclasses.replace(REWARD, extrinsic_clip=1e3)
    state, update = start(config(settings, reward=unclipped))
    state = state._replace(value_statistics=statistics(20.0, 1.0))
    rollouts = batch()
    rollouts = rollouts._replace(reward=rollouts.reward + 50)

    def values(of: Any) -> np.ndarray:
        raw = NETWORK.apply(
            of.params, rollouts.observation, rollouts.initial_state, rollouts.first
        )[1]
        center, spread = appo.moments(of.value_statistics)
        return np.asarray(raw * spread + center)

    after, _ = update(state, rollouts)
    assert appo.moments(after.value_statistics)[0] > 20
    return values(after) - values(state)


def test_statistics_move_towards_the_targets_by_their_rate() -> None:
    settings = Appo(value_normalisation="running", value_statistics_rate=0.25, max_policy_lag=100)
    state, update = start(config(settings))
    state = state._replace(value_statistics=statistics(8.0, 1.0))
    after, metrics = update(state, batch())
    expected = 0.75 * 8.0 + 0.25 * metrics["value/target_mean"]
    np.testing.assert_allclose(after.value_statistics.mean, expected, rtol=1e-4)


@pytest.mark.parametrize("normalisation", ["running", "popart"])
def test_the_first_targets_are_the_rewards_of_any_size(normalisation: str) -> None:
    settings = Appo(value_normalisation=normalisation, max_policy_lag=100)
    unclipped = dataclasses.replace(REWARD, extrinsic_clip=1e9, intrinsic_coefficient=0.0)
    state, update = start(config(settings, reward=unclipped))
    deviations = []
    for size in (1e-6, 1.0, 1e6):
        rollouts = batch()
        after, _ = update(state, rollouts._replace(reward=size * rollouts.reward))
        deviations.append(appo.moments(after.value_statistics)[1] / size)
    np.testing.assert_allclose(deviations, deviations[1], rtol=1e-3)


@pytest.mark.parametrize("normalisation", ["running", "popart"])
def test_the_scale_of_values_waits_for_the_first_reward(normalisation: str) -> None:
    settings = Appo(value_normalisation=normalisation, max_policy_lag=100)
    of_task = dataclasses.replace(REWARD, intrinsic_coefficient=0.0)
    state, update = start(config(settings, reward=of_task))
    rollouts = batch()

    unpaid, _ = update(state, rollouts._replace(reward=rollouts.reward * 0))
    paid, _ = update(unpaid, rollouts)

    assert unpaid.value_statistics == appo.first_statistics()
    assert paid.value_statistics.weight > 0


def test_popart_clips_values_around_those_that_were_played() -> None:
    """The head is rescaled with the scale, so that no value has moved and nothing is clipped."""
    state = start(config(Appo()))[0]
    rollouts = batch()
    then = statistics(2, 1)
    now = statistics(50, 3)
    rows = (rollouts.observation, rollouts.initial_state, rollouts.first)
    acting = appo.in_units_of_reward(state.params, then)
    rollouts = rollouts._replace(behaviour_value=NETWORK.apply(acting, *rows)[1][:-1])
    params = rescale_value_head(state.params, appo.moments(then), appo.moments(now))
    state = state._replace(params=params, value_statistics=now)
    value_losses = [
        losses_of(
            Appo(value_normalisation="popart", clip_value=clip, max_policy_lag=100), state, rollouts
        )[1]
        for clip in (1e-3, 1e9)
    ]
    np.testing.assert_allclose(
        value_losses[0]["loss/value"], value_losses[1]["loss/value"], rtol=1e-3
    )


def test_acting_values_are_in_units_of_reward() -> None:
    state = start(config(Appo()))[0]
    rollouts = batch()
    rows = (rollouts.observation, rollouts.initial_state, rollouts.first)
    acting = appo.in_units_of_reward(state.params, statistics(2, 3))
    raw = NETWORK.apply(state.params, *rows)[1]
    np.testing.assert_allclose(NETWORK.apply(acting, *rows)[1], raw * 3 + 2, rtol=1e-4)


def test_acting_values_are_0_before_the_first_targets() -> None:
    """As the learner's, whose first scale would make others of them large."""
    state = start(config(Appo()))[0]
    rollouts = batch()
    rows = (rollouts.observation, rollouts.initial_state, rollouts.first)
    acting = appo.in_units_of_reward(state.params, appo.first_statistics())
    assert not NETWORK.apply(acting, *rows)[1].any()


@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_advantages_may_be_in_units_of_the_returns(spread: float) -> None:
    """A batch without a reward then teaches little, instead of having its noise scaled up to unit
    size.
    """
    settings = Appo(
        value_normalisation="running", advantage_scale="returns", clip_ratio=0.1, max_policy_lag=100
    )
    rollouts = batch()
    state = start(config(Appo()))[0]._replace(value_statistics=statistics(0, spread))
    output, terms = losses_of(settings, state, rollouts)
    advantage = output.targets.advantage / spread
    clipped = jnp.clip(output.ratio, 1 / 1.1, 1.1)
    gain = jnp.minimum(output.ratio * advantage, clipped * advantage)
    expected = -jnp.mean(gain, where=trajectory.recorded(rollouts))
    np.testing.assert_allclose(terms["loss/policy"], expected, rtol=1e-5)


def test_advantages_in_units_of_returns_need_their_scale() -> None:
    settings = Appo(value_normalisation="none", advantage_scale="returns")
    with pytest.raises(
        UserError, match=r"config\.algorithm\.advantage_scale='returns'.*keeps no scale of returns"
    ):
        AppoAlgorithm.check(config(settings), NETWORK)


@pytest.mark.parametrize("advantage", ["vtrace", "gae"])
def test_on_policy_targets_are_discounted_returns(advantage: str) -> None:
    """Without clips and with lambda 1 both methods give the discounted return."""
    settings = Appo(advantage=advantage, gae_lambda=1.0, gamma=0.9, rho_clip=1.0, c_clip=1.0)
    state = start(config(Appo()))[0]
    rollouts = batch(padding=0.0)
    rollouts = rollouts._replace(
        last=np.zeros_like(rollouts.last),
        truncated=np.zeros_like(rollouts.truncated),
        first=np.zeros_like(rollouts.first),
    )
    rows = (rollouts.observation, rollouts.initial_state, rollouts.first)
    logits, value, _ = NETWORK.apply(state.params, *rows)
    log_prob = jnp.take_along_axis(
        jax.nn.log_softmax(logits[:-1]), rollouts.action[..., None], axis=-1
    )[..., 0]
    output, _ = losses_of(settings, state, rollouts._replace(behaviour_log_prob=log_prob))
    expected = np.asarray(value[-1])
    for step in reversed(range(6)):
        expected = rollouts.reward[step] + 0.9 * np.where(rollouts.terminated[step], 0, expected)
        np.testing.assert_allclose(output.targets.value[step], expected, rtol=1e-4, atol=1e-5)


def test_gae_with_lambda_zero_is_the_temporal_difference() -> None:
    settings = Appo(advantage="gae", gae_lambda=0.0, gamma=0.9)
    state = start(config(Appo()))[0]
    rollouts = batch(padding=0.0)
    rollouts = rollouts._replace(
        last=np.zeros_like(rollouts.last), truncated=np.zeros_like(rollouts.truncated)
    )
    value = NETWORK.apply(
        state.params, rollouts.observation, rollouts.initial_state, rollouts.first
    )[1]
    output, _ = losses_of(settings, state, rollouts)
    next_value = np.where(rollouts.terminated, 0, value[1:])
    expected = rollouts.reward + 0.9 * next_value - value[:-1]
    np.testing.assert_allclose(output.targets.advantage, expected, rtol=1e-4, atol=1e-5)
