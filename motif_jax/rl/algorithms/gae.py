"""Generalised advantage estimation (Schulman et al. 2016), with rows that end episodes."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.rl.algorithms.vtrace import Targets


def gae(
    value: Array,
    bootstrap_value: Array,
    reward: Array,
    discount: Array,
    last: Array,
    gae_lambda: float,
) -> Targets:
    """Computes advantages and discounted returns backwards over a rollout; float32 [T, B] each.

        delta_t  = r_t + discount_t V_{t+1} - V_t
        A_t      = delta_t + discount_t lambda A_{t+1}
        return_t = r_t + discount_t return_{t+1},   return_T = bootstrap_value

    The value target is the discounted return, not A + V. A `last` row only carries the value of an
    episode's final observation to the row before it: return_t = V_t, A_t = 0.

    Args: see `vtrace.vtrace`; `gae_lambda` is lambda in [0, 1].
    """
    chex.assert_rank([value, bootstrap_value], [2, 1])
    chex.assert_equal_shape([value, reward, discount, last])

    def step(
        carry: tuple[Array, Array, Array], row: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Targets]:
        next_value, next_advantage, next_return = carry
        v, r, gamma, is_last = row
        advantage = r + gamma * next_value - v + gamma * gae_lambda * next_advantage
        # So the row before takes this row's value, and nothing of the next episode.
        advantage = jnp.where(is_last, 0.0, advantage)
        discounted_return = jnp.where(is_last, v, r + gamma * next_return)
        return (v, advantage, discounted_return), Targets(discounted_return, advantage)

    # V_T, A_T and return_T.
    start = (bootstrap_value, jnp.zeros_like(bootstrap_value), bootstrap_value)
    _, targets = jax.lax.scan(step, start, (value, reward, discount, last), reverse=True)
    return targets
