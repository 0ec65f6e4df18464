"""What all updates have in common: rewards, rows that count, the learning rate, counters and
metrics.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.sections import Optimizer
from motif_jax.glam.config import QLearning
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.algorithms.appo import AppoAlgorithm
from motif_jax.rl.algorithms.config import Appo, Ppo
from tests.reward_fixtures import load_config
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

ALGORITHMS = {
    "appo": Appo(max_policy_lag=100),
    "ppo": Ppo(minibatch_size=12, microbatch_size=12, epochs=1),
    "drrn": QLearning(epochs=1, replay_steps=24, replay_draw=24),
}
# The quick tests take one, the default two: each compiles its own update for every test.
by_algorithm = pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(ALGORITHMS["appo"], id="appo"),
        pytest.param(ALGORITHMS["ppo"], id="ppo", marks=pytest.mark.slow),
        pytest.param(ALGORITHMS["drrn"], id="drrn", marks=pytest.mark.extra),
    ],
)


@by_algorithm
def test_an_update_counts_itself_and_the_recorded_steps(algorithm: Any) -> None:
    state, update = start(config(algorithm))
    rollouts = batch()
    recorded = np.asarray(trajectory.recorded(rollouts))
    after, metrics = update(state, rollouts)
    assert int(after.step) == 11
    assert after.env_steps.tolist() == [0, recorded.sum()]
    assert metrics["batch/recorded_share"] == pytest.approx(recorded.mean())
    lag = (10 - rollouts.parameter_version)[recorded]
    assert metrics["lag/mean"] == pytest.approx(lag.mean())
    assert metrics["lag/max"] == lag.max()


@by_algorithm
def test_metrics_of_an_update_are_finite_scalars(algorithm: Any) -> None:
    state, update = start(config(algorithm))
    _, metrics = update(state, batch())
    for name, value in metrics.items():
        assert (value.shape, value.dtype, bool(np.isfinite(value))) == ((), jnp.float32, True), name


@by_algorithm
def test_actions_and_values_of_unrecorded_rows_change_nothing(algorithm: Any) -> None:
    state, update = start(config(algorithm))
    rollouts = batch()
    # Values of rows behind a truncated step are bootstrapped from.
    rollouts = rollouts._replace(
        terminated=rollouts.terminated | rollouts.truncated,
        truncated=np.zeros_like(rollouts.truncated),
    )
    ignored = ~np.asarray(trajectory.recorded(rollouts))
    final = np.asarray(rollouts.last[:-1])
    assert ignored.any()
    spoiled = rollouts._replace(
        action=np.where(ignored, 2, rollouts.action).astype(np.int32),
        behaviour_value=np.where(final, 50, rollouts.behaviour_value).astype(np.float32),
        behaviour_log_prob=np.where(final, -50, rollouts.behaviour_log_prob).astype(np.float32),
        reward=np.where(final, 1e3, rollouts.reward).astype(np.float32),
    )
    legal = spoiled.observation["legal"].copy()
    legal[:-1, ..., 2] |= ignored.astype(np.uint8)
    spoiled = spoiled._replace(observation={**spoiled.observation, "legal": legal})
    np.testing.assert_allclose(
        change(state, update(state, rollouts)[0]),
        change(state, update(state, spoiled)[0]),
        rtol=1e-3,
        atol=1e-6,
    )


@by_algorithm
def test_an_update_is_the_same_for_the_same_key(algorithm: Any) -> None:
    state, update = start(config(algorithm))
    one, _ = update(state, batch())
    other, _ = update(state, batch())
    np.testing.assert_array_equal(change(state, one), change(state, other))


@pytest.mark.parametrize("name", ["ppo", "drrn"])
def test_each_update_draws_anew(name: str) -> None:
    state, update = start(config(ALGORITHMS[name]))
    after, _ = update(state, batch())
    assert not np.array_equal(jax.random.key_data(after.key), jax.random.key_data(state.key))


@by_algorithm
def test_the_learning_rate_falls_with_the_share_of_the_run(algorithm: Any) -> None:
    optimizer = Optimizer(learning_rate=0.02, schedule="linear", final_fraction=0.1)
    settings = config(algorithm, optimizer=optimizer, train_for_env_steps=100)
    state, update = start(settings)
    _, first = update(state, batch())
    _, later = update(state._replace(env_steps=jnp.array([0, 50], jnp.int32)), batch())
    assert first["optimizer/learning_rate"] == pytest.approx(0.02)
    assert later["optimizer/learning_rate"] == pytest.approx(0.02 * (0.1 + 0.9 * 0.5))


@by_algorithm
def test_the_reward_is_the_weighted_sum_of_both(algorithm: Any) -> None:
    """A scale of 1.5, a clip at 1.2, coefficients 0.7 and 0.4, and the root of the count."""
    state, update = start(config(algorithm))
    rollouts = batch(padding=0.0)
    recorded = np.asarray(trajectory.recorded(rollouts))
    reward = np.maximum(rollouts.reward, 0) if isinstance(algorithm, QLearning) else rollouts.reward
    extrinsic = np.clip(1.5 * reward, -1.2, 1.2)
    intrinsic = rollouts.intrinsic_reward / np.sqrt(rollouts.observation["count"][:-1])
    _, metrics = update(state, rollouts)
    assert metrics["reward/extrinsic_mean"] == pytest.approx(extrinsic[recorded].mean(), rel=1e-5)
    assert metrics["reward/intrinsic_mean"] == pytest.approx(intrinsic[recorded].mean(), rel=1e-5)
    total = (0.7 * extrinsic + 0.4 * intrinsic)[recorded].mean()
    assert metrics["reward/total_mean"] == pytest.approx(total, rel=1e-5)


def test_the_rewards_of_sentences_are_not_divided_by_counts_again() -> None:
    rollouts = batch()
    network: Any = Linear("signal", "legal")
    optimizer: Any = None
    paid = {}
    for by in ("message", "sentence"):
        settings = config(Appo(), reward=dataclasses.replace(REWARD, by=by))
        paid[by] = AppoAlgorithm(settings, network, optimizer).rewards(None, rollouts).intrinsic

    np.testing.assert_array_equal(paid["sentence"], rollouts.intrinsic_reward)
    counts = rollouts.observation["count"][:-1]
    np.testing.assert_allclose(paid["message"] * np.sqrt(counts), paid["sentence"], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pay", "pays_last_text"), [("read", True), ("caused", True), extra("read", False)]
)
@by_algorithm
def test_rewards_inside_the_step_are_as_in_the_batch(
    algorithm: Any, pay: str, pays_last_text: bool
) -> None:
    """The final observation of an episode is paid, too, where the environment's last text is."""
    rows = STEPS + pays_last_text

    def reward_fn(scale: Any, observation: Any) -> Any:
        assert observation["signal"].shape == (rows, ROLLOUTS, 3)
        return scale * observation["signal"][..., 0]

    settings = config(algorithm, reward=dataclasses.replace(REWARD, pay=pay))
    plain = batch()
    state, update_inside = start(settings, reward_fn, pays_last_text)
    state = state._replace(reward_params=jnp.float32(2))
    _, update_outside = start(settings, None, pays_last_text)
    intrinsic = 2 * plain.observation["signal"][..., 0]
    rewarded = plain._replace(intrinsic_reward=intrinsic[:-1])
    if pay == "caused":
        of_next_row = np.where(plain.last[:-1] | plain.first[1:], 0, intrinsic[1:])
        rewarded = plain._replace(
            intrinsic_reward=np.zeros_like(of_next_row), next_intrinsic_reward=of_next_row
        )
    elif pays_last_text:
        rewarded = rewarded._replace(
            next_intrinsic_reward=np.where(plain.last[1:], intrinsic[1:], 0)
        )

    inside, metrics_inside = update_inside(state, plain)
    outside, metrics_outside = update_outside(state, rewarded)

    np.testing.assert_allclose(change(state, inside), change(state, outside), rtol=1e-3, atol=1e-7)
    expected_mean = float(metrics_outside["reward/intrinsic_mean"])
    assert metrics_inside["reward/intrinsic_mean"] == pytest.approx(expected_mean)
    assert inside.reward_params == 2


@pytest.mark.parametrize("name", ["ppo", "drrn"])
def test_a_negative_task_reward_counts_only_where_it_is_to(name: str) -> None:
    positive = dataclasses.replace(ALGORITHMS[name], positive_reward=True)
    signed = dataclasses.replace(ALGORITHMS[name], positive_reward=False)
    rollouts = batch()
    floored = rollouts._replace(reward=np.maximum(rollouts.reward, 0))
    state, update = start(config(positive))
    _, update_signed = start(config(signed))
    default = change(state, update(state, rollouts)[0])
    np.testing.assert_allclose(default, change(state, update_signed(state, floored)[0]), rtol=1e-5)
    assert not np.allclose(default, change(state, update_signed(state, rollouts)[0]), atol=1e-4)


def test_a_task_subtracts_rewards_except_where_glam_ignores_them() -> None:
    """PPO may be chosen for any task, many of which pay below 0."""
    assert not Ppo().positive_reward
    assert load_config("train_language_agent", "", {}).algorithm.positive_reward
    assert load_config("train_agent", "symbolic", {}).algorithm.positive_reward
