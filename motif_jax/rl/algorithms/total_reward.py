"""The reward an agent learns from: a task's own, and the intrinsic one."""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax.numpy as jnp
from jax import Array

from motif_jax.core.training import reductions
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentReward


class Rewards(NamedTuple):
    """Rewards of the rows of a batch, float32 [T, B] each."""

    extrinsic: Array  # scaled and clipped, before the coefficient
    intrinsic: Array  # discounted by count, before the coefficient
    total: Array


def scale_reward(reward: Array, scale: float, limit: float) -> Array:
    """Task reward times `scale`, clipped to [-limit, limit]; any shape."""
    return jnp.clip(scale * reward, -limit, limit)


def discount_by_count(intrinsic: Array, count: Array, exponent: float) -> Array:
    """Divides intrinsic rewards float32 [...] by N^exponent, N the visits of the text so far in this episode (at least 1)."""
    chex.assert_equal_shape([intrinsic, count])
    return intrinsic / jnp.maximum(count.astype(jnp.float32), 1.0) ** exponent


def total_reward(
    extrinsic: Array, intrinsic: Array, extrinsic_coefficient: float, intrinsic_coefficient: float
) -> Array:
    """Weighted sum of the scaled task reward and the discounted intrinsic reward; float32 [...]."""
    chex.assert_equal_shape([extrinsic, intrinsic])
    return extrinsic_coefficient * extrinsic + intrinsic_coefficient * intrinsic


def compute_rewards(reward: AgentReward, batch: TrajectoryBatch, count_field: str | None) -> Rewards:
    """Combines task reward and intrinsic reward; `count_field` has the visits of a row's text.

    The action that ends an episode is paid for the observation on which it was chosen, and for the final one, where
    the batch has that (`last_intrinsic_reward`).
    """
    extrinsic = scale_reward(batch.reward, reward.extrinsic_scale, reward.extrinsic_clip)
    intrinsic, last = batch.intrinsic_reward, batch.last_intrinsic_reward
    if count_field is not None:
        count = batch.observation[count_field]
        intrinsic = discount_by_count(intrinsic, count[:-1], reward.count_exponent)
        if last is not None:
            last = discount_by_count(last, count[1:], reward.count_exponent)
    if last is not None:
        intrinsic = intrinsic + last
    assert reward.extrinsic_coefficient is not None
    coefficients = (reward.extrinsic_coefficient, reward.intrinsic_coefficient)
    return Rewards(extrinsic, intrinsic, total_reward(extrinsic, intrinsic, *coefficients))


def reward_metrics(rewards: Rewards, recorded: Array, axis_name: str | None) -> dict[str, Array]:
    """Means of the rewards over the recorded rows."""
    return {
        "reward/extrinsic_mean": reductions.mean(rewards.extrinsic, recorded, axis_name),
        "reward/intrinsic_mean": reductions.mean(rewards.intrinsic, recorded, axis_name),
        "reward/total_mean": reductions.mean(rewards.total, recorded, axis_name),
        "reward/rewarded_share": reductions.mean((rewards.intrinsic != 0) * 1.0, recorded, axis_name),
    }
