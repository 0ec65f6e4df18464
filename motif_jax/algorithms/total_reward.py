"""The reward an agent learns from: a task's own, and the intrinsic one."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp

Array = jax.Array


def scale_reward(reward: Array, scale: float, limit: float) -> Array:
    """Task reward times `scale`, clipped to [-limit, limit]; any shape."""
    return jnp.clip(scale * reward, -limit, limit)


def discount_by_count(intrinsic: Array, count: Array, exponent: float) -> Array:
    """Divides an intrinsic reward by N^exponent, N the visits of its text in this episode (at least 1).

    Args:
      intrinsic: float32 [...].
      count: integer or float [...], this visit included.
      exponent: 0 leaves the reward as it is.

    Returns:
      float32 [...].
    """
    chex.assert_equal_shape([intrinsic, count])
    return intrinsic / jnp.maximum(count.astype(jnp.float32), 1.0) ** exponent


def total_reward(
    extrinsic: Array, intrinsic: Array, extrinsic_coefficient: float, intrinsic_coefficient: float
) -> Array:
    """Weighted sum of the scaled task reward and the discounted intrinsic reward; float32 [...]."""
    chex.assert_equal_shape([extrinsic, intrinsic])
    return extrinsic_coefficient * extrinsic + intrinsic_coefficient * intrinsic
