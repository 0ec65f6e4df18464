"""What the update's settings do, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.algorithms import appo, schedules, trajectory, value_normalisation
from motif_jax.networks.agent import rescale_value_head
from tests.agents import FLAT_SPEC, appo_config, flat_network, random_batch

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@functools.cache
def plain_update() -> tuple[Any, appo.AppoTrainState, Any]:
    return flat_update(appo_config())


def flat_update(config: Any, **options: Any) -> tuple[Any, appo.AppoTrainState, Any]:
    network = flat_network()
    optimizer = schedules.make_optimizer(config.optimizer)
    batch = random_batch(FLAT_SPEC, network.state_size, 6, 8, seed=1, padding=0.2)
    return jax.jit(appo.make_update(network, optimizer, config, **options)), new_state(config), batch


def new_state(config: Any) -> appo.AppoTrainState:
    return appo.make_state(flat_network(), schedules.make_optimizer(config.optimizer), jax.random.key(0))


@pytest.mark.slow
def test_final_rows_change_nothing() -> None:
    update, state, batch = plain_update()
    batch = batch._replace(parameter_version=np.zeros_like(batch.parameter_version))
    final = batch.last[:-1]
    assert 0.1 < final.mean() < 0.6
    numbers = {"behaviour_value": 50, "behaviour_log_prob": -50, "reward": 1e3}
    spoiled = {name: np.where(final, x, getattr(batch, name)).astype("f") for name, x in numbers.items()}
    spoiled["action"] = np.where(final, 2, batch.action).astype(np.int32)
    plain, other = update(state, batch), update(state, batch._replace(**spoiled))
    assert plain[1]["reward/extrinsic_mean"] == other[1]["reward/extrinsic_mean"]
    chex.assert_trees_all_equal(plain[0].params, other[0].params)


@pytest.mark.slow
def test_old_rows_are_masked_but_normalise_advantages() -> None:
    update, state, batch = flat_update(appo_config(max_policy_lag=5))
    batch = batch._replace(parameter_version=np.full_like(batch.parameter_version, 10))
    state = state._replace(step=jnp.int32(15))
    after, metrics = update(state, batch)
    found = [metrics[name] for name in ("batch/valid_share", "loss/total", "lag/mean", "lag/max")]
    assert found == [0, 0, 5, 5]
    chex.assert_trees_all_equal(after.params, state.params)
    half = np.where(np.arange(8) < 4, 10, 11) * np.ones((6, 1))
    _, partly = update(state, batch._replace(parameter_version=half.astype(np.int32)))
    np.testing.assert_allclose(partly["advantage/std"], metrics["advantage/std"], rtol=1e-6)
    assert 0.3 < partly["batch/valid_share"] < 0.7


def test_step_limits_as_terminal_leave_no_bootstrap() -> None:
    batch = random_batch(FLAT_SPEC, 16, 6, 8, seed=2)
    assert batch.truncated.any()
    done = np.asarray(trajectory.done(batch))
    np.testing.assert_array_equal(done, batch.terminated)
    without = batch._replace(last=np.zeros_like(batch.last))
    np.testing.assert_array_equal(trajectory.done(without), batch.terminated | batch.truncated)


@pytest.mark.slow
def test_values_are_clipped_round_those_that_were_played_when_the_scale_has_moved_since() -> None:
    """With PopArt the head is rescaled with the scale, so that nothing has moved and nothing is clipped."""
    config, network = appo_config(value_normalisation="popart"), flat_network()
    state = new_state(config)
    batch = random_batch(FLAT_SPEC, network.state_size, 4, 2, seed=0)
    scales = [value_normalisation.ValueStatistics(*map(jnp.float32, s)) for s in ((2, 5, 1), (50, 2509, 1))]
    played, learned = ((center, spread) for center, spread in map(value_normalisation.moments, scales))
    rows = (batch.observation, batch.initial_state, batch.first)
    acting = appo.in_units_of_reward(state.params, scales[0])
    value = network.apply(acting, *rows)[1][:-1]
    raw = network.apply(state.params, *rows)[1][:-1]
    np.testing.assert_allclose(value, raw * played[1] + played[0], rtol=1e-4)
    batch = batch._replace(behaviour_value=value)
    params = rescale_value_head(state.params, played, learned)
    state = state._replace(params=params, value_statistics=scales[1])
    found = []
    for clip in (1e-3, 1e9):
        settings = dataclasses.replace(config.algorithm, clip_value=clip)
        output = appo.run_network(network, config, state, batch, batch.reward)
        found.append(appo.compute_loss(settings, state, batch, output, None)[1]["loss/value"])
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_empty_statistics_stay() -> None:
    before = value_normalisation.initial()
    after = value_normalisation.update(before, jnp.ones(3), jnp.zeros(3, bool), 0.5)
    assert after == before
    moved = value_normalisation.update(before, jnp.array([1.0, 3.0]), jnp.ones(2, bool), 0.5)
    np.testing.assert_allclose(value_normalisation.moments(moved), (2, 1))


def test_a_batch_of_wrong_shape_is_refused() -> None:
    update, state, batch = plain_update()
    with pytest.raises(AssertionError, match=r"shape \(6, 8\) but expected \(7, 8\)"):
        update(state, batch._replace(last=batch.last[:-1]))
