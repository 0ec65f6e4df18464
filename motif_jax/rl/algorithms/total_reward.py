"""The reward an agent learns from: the weighted sum of the task's reward and the intrinsic one.

The formula is written once, for arrays of jax (training) and of numpy (`wrappers.py`, returns of
episodes). Its count discount is in `rl.count_discount`, which code without jax calls, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import numpy as np
from jax import Array

from motif_jax.core.training import reductions
from motif_jax.rl import count_discount
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import AgentReward


class Rewards(NamedTuple):
    """Rewards of the rows of a batch, float32 [T, B] each."""

    extrinsic: Array  # scaled and clipped, before the coefficient
    intrinsic: Array  # discounted by count, before the coefficient
    total: Array


def _namespace(x: Any) -> Any:
    """`jax.numpy` for an array of jax, else `numpy`."""
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def scale_reward(reward: Any, scale: float, limit: float) -> Any:
    """Task reward times `scale`, clipped to [-limit, limit]; any shape, an array of numpy or
    jax.
    """
    return _namespace(reward).clip(scale * reward, -limit, limit)


def discount_by_count(intrinsic: Any, count: Any, exponent: float) -> Any:
    """`count_discount.discount` of intrinsic rewards [...] by counts [...] of any type; a count
    below 1 counts as 1.

    Arrays of numpy or jax; the quotient has the type of `intrinsic`, float32 or float64.
    """
    chex.assert_equal_shape([intrinsic, count])
    visits = _namespace(intrinsic).maximum(count.astype(intrinsic.dtype), 1.0)
    return count_discount.discount(intrinsic, visits, exponent)


def total_reward(
    extrinsic: Any, intrinsic: Any, extrinsic_coefficient: float, intrinsic_coefficient: float
) -> Any:
    """Weighted sum of the scaled task reward and the discounted intrinsic reward; float32 [...] of
    numpy or jax.
    """
    chex.assert_equal_shape([extrinsic, intrinsic])
    return extrinsic_coefficient * extrinsic + intrinsic_coefficient * intrinsic


def compute_rewards(
    reward: AgentReward, batch: TrajectoryBatch, count_field: str | None
) -> Rewards:
    """Combines task reward and intrinsic reward; the observation's `count_field` counts the visits
    of a row's text (None: rewards are divided by no count).

    An action is paid for the observation on which it was chosen (`intrinsic_reward`), and for the
    one to which it led, where the batch has that (`next_intrinsic_reward`).
    """
    assert reward.extrinsic_coefficient is not None, "of a config that is not resolved"
    extrinsic = scale_reward(batch.reward, reward.extrinsic_scale, reward.extrinsic_clip)
    intrinsic = batch.intrinsic_reward
    of_next_row = batch.next_intrinsic_reward
    if count_field is not None:
        count = batch.observation[count_field]
        # Row t has the text on which action t is chosen, and its count.
        intrinsic = discount_by_count(intrinsic, count[:-1], reward.count_exponent)
        if of_next_row is not None:
            # The observation to which action t led is row t + 1.
            of_next_row = discount_by_count(of_next_row, count[1:], reward.count_exponent)
    if of_next_row is not None:
        intrinsic = intrinsic + of_next_row
    total = total_reward(
        extrinsic, intrinsic, reward.extrinsic_coefficient, reward.intrinsic_coefficient
    )
    return Rewards(extrinsic, intrinsic, total)


def reward_metrics(rewards: Rewards, recorded: Array, axis_name: str | None) -> dict[str, Array]:
    """Means of the rewards over the recorded rows, bool [T, B]; float32 scalars."""
    return {
        "reward/extrinsic_mean": reductions.mean(rewards.extrinsic, recorded, axis_name),
        "reward/intrinsic_mean": reductions.mean(rewards.intrinsic, recorded, axis_name),
        "reward/total_mean": reductions.mean(rewards.total, recorded, axis_name),
        "reward/rewarded_share": reductions.mean(
            (rewards.intrinsic != 0) * 1.0, recorded, axis_name
        ),
    }
