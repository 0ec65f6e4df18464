"""Count discount and the sum of rewards against the golden numbers."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.rl.algorithms.total_reward import (
    Rewards,
    compute_rewards,
    discount_by_count,
    reward_metrics,
    scale_reward,
    total_reward,
)
from motif_jax.rl.config import AgentReward
from tests.rl.runs import column


@pytest.mark.parametrize(
    ("name", "intrinsic", "coefficients", "exponent"),
    [
        ("final_total", "final_llm_after_norm_threshold", (0.1, 0.1), 3),
        ("final_total_ext0p1_llm0p1_beta3", "final_llm_after_norm_threshold", (0.1, 0.1), 3),
        ("final_total_B_ext10_llm0p5_beta1", "final_B_llm", (10.0, 0.5), 1),
        ("final_total_C_no_norm", "final_C_llm_no_norm", (0.1, 0.1), 3),
    ],
)
def test_total_is_the_golden_one(golden, name, intrinsic, coefficients, exponent):
    n = golden("reward_norm.npz")
    discounted = discount_by_count(n[intrinsic], n["final_count"], exponent)
    total = total_reward(n["final_env_reward"], discounted, *coefficients)
    np.testing.assert_allclose(total, n[name], rtol=1e-5, atol=1e-6)


def test_task_rewards_are_clipped_after_the_scale() -> None:
    scaled = scale_reward(np.array([5.0, 99.0, 101.0, -500.0], np.float32), 0.1, 10.0)
    np.testing.assert_allclose(scaled, [0.5, 9.9, 10, -10], rtol=1e-6)


def test_the_rewarded_share_counts_recorded_rows_of_both_signs() -> None:
    intrinsic = jnp.array([[2.0, 0.0], [-1.0, 5.0]])
    recorded = jnp.array([[True, True], [True, False]])
    metrics = reward_metrics(Rewards(intrinsic * 3, intrinsic, intrinsic * 9), recorded, None)
    means = {"extrinsic_mean": 1, "intrinsic_mean": 1 / 3, "total_mean": 3, "rewarded_share": 2 / 3}
    assert {name: float(metrics[f"reward/{name}"]) for name in means} == pytest.approx(means)


def test_counts_below_one_count_once() -> None:
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(discount_by_count(ones, np.array([0, 1, 2]), 3.0), [1, 1, 0.125])
    np.testing.assert_allclose(discount_by_count(ones, np.array([0, 1, 2]), 0.0), 1)


def test_an_episodes_last_action_is_paid_for_both_texts() -> None:
    reward = AgentReward(
        extrinsic_coefficient=2.0,
        intrinsic_coefficient=0.5,
        extrinsic_scale=1.0,
        count_exponent=2.0,
    )
    batch = column([0, 0, 0], [0, 0, 1], [0, 1, 0], intrinsic=4.0)
    count = np.array([[1], [2], [4], [1]], np.int32)
    batch = batch._replace(
        observation={**batch.observation, "count": count},
        reward=np.ones_like(batch.reward),
        next_intrinsic_reward=np.array([[0.0], [16.0], [0.0]], np.float32),
    )
    paid = compute_rewards(reward, batch, "count")
    np.testing.assert_allclose(paid.intrinsic[:, 0], [4.0, 4 / 4 + 16 / 16, 4 / 16], rtol=1e-6)
    np.testing.assert_allclose(paid.total[:, 0], 2.0 + 0.5 * paid.intrinsic[:, 0], rtol=1e-6)


def test_numpy_and_jax_pay_the_same() -> None:
    task = np.array([-300.0, 0.5, 20.0], np.float32)
    intrinsic = np.array([0.0, 1.5, 2.0], np.float32)
    count = np.array([1, 0, 7], np.int64)
    totals = []
    for array in (np.asarray, jnp.asarray):
        scaled = scale_reward(array(task), 0.1, 10.0)
        discounted = discount_by_count(array(intrinsic), array(count), 3.0)
        totals.append(total_reward(scaled, discounted, 0.1, 0.4))
    assert isinstance(totals[0], np.ndarray)
    assert totals[0].dtype == np.float32
    np.testing.assert_allclose(totals[0], totals[1], rtol=1e-6)
