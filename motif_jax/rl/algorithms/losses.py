"""The terms of the asynchronous PPO loss (Schulman et al. 2017; Petrenko et al. 2020), over any
devices.

The losses take arrays of one shape [...], count the rows where `valid`, and return a scalar that is
equal on all devices of `axis_name`.
"""

from __future__ import annotations

import math

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.training import reductions

Array = jax.Array
MAX_DIVERGENCE = 30.0  # nats


def clamp(x: Array, low: float, high: float) -> Array:
    """Limits `x` to [low, high]; the gradient is 1 inside, the ends included, and 0 outside."""
    # In place of `jnp.clip`, whose gradient at the ends is 0.5.
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def probability_ratio(log_prob: Array, behaviour_log_prob: Array, low: float, high: float) -> Array:
    """pi(a) / mu(a), clamped to [low, high] against numerical extremes; float32 [...]."""
    chex.assert_equal_shape([log_prob, behaviour_log_prob])
    return clamp(jnp.exp(log_prob - behaviour_log_prob), low, high)


def policy_loss(
    ratio: Array, advantage: Array, valid: Array, clip_ratio: float, axis_name: str | None = None
) -> Array:
    """Clipped surrogate: minus the mean of min(ratio A, clip(ratio) A), clip to [1/(1+c), 1+c];
    float32 scalar.

    Args:
      ratio: float32 [...], with gradient.
      advantage: float32 [...], without gradient.
      clip_ratio: c.
    """
    chex.assert_equal_shape([ratio, advantage, valid])
    clipped = clamp(ratio, 1 / (1 + clip_ratio), 1 + clip_ratio)
    return -reductions.mean(jnp.minimum(ratio * advantage, clipped * advantage), valid, axis_name)


def value_loss(
    value: Array,
    behaviour_value: Array,
    target: Array,
    valid: Array,
    clip_value: float,
    axis_name: str | None = None,
) -> Array:
    """Mean of `value_errors`, float32 scalar; `value` [...] has a gradient, `target` has none."""
    chex.assert_equal_shape([value, behaviour_value, target, valid])
    return reductions.mean(
        value_errors(value, behaviour_value, target, clip_value), valid, axis_name
    )


def value_errors(value: Array, behaviour_value: Array, target: Array, clip_value: float) -> Array:
    """max((V - target)^2, (V_old + clip(V - V_old, -c, c) - target)^2), float32 [...]; c is in
    units of the value.
    """
    clipped = behaviour_value + clamp(value - behaviour_value, -clip_value, clip_value)
    return jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))


def symmetric_kl(logits: Array, legal: Array | None = None) -> Array:
    """Half the sum of both Kullback-Leibler divergences from the uniform distribution, float32
    [...] in nats.

    Args:
      logits: float32 [..., A].
      legal: bool [..., A], the actions that the uniform distribution covers; None: all.
    """
    log_p = jax.nn.log_softmax(logits)
    if legal is None:
        log_u = -math.log(logits.shape[-1])
        from_uniform = jnp.sum(jnp.exp(log_p) * (log_p - log_u), axis=-1)
        # KL(u || p), as u is 1 / A for each action.
        to_uniform = jnp.mean(log_u - log_p, axis=-1)
        return 0.5 * (from_uniform + to_uniform)
    count = jnp.maximum(jnp.sum(legal, axis=-1, keepdims=True), 1)
    log_ratio = jnp.where(legal, log_p + jnp.log(count), 0.0)
    # Both divergences in one sum: (p - u) (log p - log u).
    return 0.5 * jnp.sum((jnp.exp(log_p) - 1 / count) * log_ratio, axis=-1)


def entropy_loss(
    entropy: Array, valid: Array, coefficient: float, axis_name: str | None = None
) -> Array:
    """Minus the coefficient times the mean of a policy's entropies [...]; float32 scalar."""
    return -coefficient * reductions.mean(entropy, valid, axis_name)


def symmetric_kl_loss(
    logits: Array,
    valid: Array,
    coefficient: float,
    axis_name: str | None = None,
    legal: Array | None = None,
) -> Array:
    """Coefficient times the mean symmetric divergence of `logits` [..., A] from uniform; float32
    scalar.

    Beyond 30 nats there is no gradient. A mean that is not finite gives a loss of zero without
    gradient.
    """
    divergence = reductions.mean(
        symmetric_kl(jax.lax.stop_gradient(logits), legal), valid, axis_name
    )
    finite = jnp.isfinite(divergence)
    # In the backward pass, zero times a logit that is not finite would be NaN: such logits are
    # replaced, not multiplied by 0.
    safe_logits = jnp.where(finite, logits, 0.0)
    mean = reductions.mean(symmetric_kl(safe_logits, legal), valid, axis_name)
    divergence = clamp(mean, -MAX_DIVERGENCE, MAX_DIVERGENCE)
    return coefficient * jnp.where(finite, divergence, 0.0)


def policy_metrics(
    ratio: Array, entropy: Array, is_clipped: Array, valid: Array, axis_name: str | None
) -> dict[str, Array]:
    """Metrics of a policy, float32 scalars, as means and extremes over the valid rows.

    Args:
      ratio: float32 [...], current over behaviour probability.
      entropy: float32 [...], in nats.
      is_clipped: bool [...], whether the surrogate clips the ratio.
    """
    return {
        "policy/entropy": reductions.mean(entropy, valid, axis_name),
        # The non-negative estimator of KL(behaviour || current) from samples of the behaviour
        # policy.
        "policy/kl": reductions.mean(ratio - 1 - jnp.log(ratio), valid, axis_name),
        "policy/ratio_mean": reductions.mean(ratio, valid, axis_name),
        "policy/ratio_min": reductions.minimum(ratio, valid, axis_name),
        "policy/ratio_max": reductions.maximum(ratio, valid, axis_name),
        "policy/clip_fraction": reductions.mean(is_clipped * 1.0, valid, axis_name),
    }
