"""Value targets and advantages over a rollout, with rows that end episodes.

V-trace: Espeholt et al. 2018, "IMPALA", section 4.1. Generalised advantage estimation: Schulman et
al. 2016.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array


class Targets(NamedTuple):
    """Targets of the value function, and advantages of the actions taken, over a rollout: float32
    [T, B].
    """

    value: Array
    advantage: Array


def vtrace(
    value: Array,
    bootstrap_value: Array,
    reward: Array,
    discount: Array,
    last: Array,
    ratio: Array,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Targets:
    """Computes V-trace backwards over a rollout.

    With rho = min(ratio, rho_clip) and c = min(ratio, c_clip),

        delta_t = rho_t (r_t + discount_t V_{t+1} - V_t)
        vs_t    = V_t + delta_t + discount_t c_t (vs_{t+1} - V_{t+1})
        A_t     = rho_t (r_t + discount_t vs_{t+1} - V_t)

    and vs_T = V_T = bootstrap_value. A `last` row only carries the value of an episode's final
    observation to the row before it: vs_t = V_t, A_t = 0, and no trace crosses it.

    Args:
      value: float32 [T, B], V of the current network, without gradient.
      bootstrap_value: float32 [B], V of the row after the rollout.
      reward: float32 [T, B].
      discount: float32 [T, B], gamma, and 0 where the action ended the episode.
      last: bool [T, B], the row holds the final observation of an episode.
      ratio: float32 [T, B], current over behaviour probability of the action.
    """
    chex.assert_rank([value, bootstrap_value], [2, 1])
    chex.assert_equal_shape([value, reward, discount, last, ratio])

    def step(
        carry: tuple[Array, Array], row: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Targets]:
        next_value, next_target = carry
        v, r, gamma, is_last, rho, c = row
        # Backwards: the carry is V_{t+1} and vs_{t+1}.
        delta = rho * (r + gamma * next_value - v)
        target = v + delta + gamma * c * (next_target - next_value)
        # To the row before, a final observation is V alone; the row after it is another episode's.
        target = jnp.where(is_last, v, target)
        advantage = jnp.where(is_last, 0.0, rho * (r + gamma * next_target - v))
        return (v, target), Targets(target, advantage)

    rows = (value, reward, discount, last, jnp.minimum(ratio, rho_clip), jnp.minimum(ratio, c_clip))
    _, targets = jax.lax.scan(step, (bootstrap_value, bootstrap_value), rows, reverse=True)
    return targets


def published_bootstrap(last_value: Array, last_reward: Array, gamma: float) -> Array:
    """The published value after a rollout, float32 [B]: with it the last temporal difference of a
    running episode is zero.
    """
    return (last_value - last_reward) / gamma


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

    Args: see `vtrace`; `gae_lambda` is lambda in [0, 1].
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
