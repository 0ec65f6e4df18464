"""The terms of the asynchronous PPO loss (Schulman et al. 2017; Petrenko et al. 2020), over any devices.

Every function takes arrays of one shape [...], counts the rows where `valid`, and returns a scalar.
"""

from __future__ import annotations

import math

import chex
import jax
import jax.numpy as jnp

from motif_jax.core.training import reductions

Array = jax.Array
MOST_DIVERGENCE = 30.0  # nats


def clamp(x: Array, low: float, high: float) -> Array:
    """Limits `x` to [low, high]; the gradient is 1 inside, the ends included, and 0 outside."""
    return jnp.where(x < low, low, jnp.where(x > high, high, x))


def log_probability(logits: Array, action: Array) -> Array:
    """Log-probability in nats of `action` [...] under `logits` [..., A]; float32 [...]."""
    chex.assert_equal_shape_prefix([logits, action], action.ndim)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def probability_ratio(log_prob: Array, behaviour_log_prob: Array, low: float, high: float) -> Array:
    """pi(a) / mu(a), clamped to [low, high] against numerical extremes; float32 [...]."""
    chex.assert_equal_shape([log_prob, behaviour_log_prob])
    return clamp(jnp.exp(log_prob - behaviour_log_prob), low, high)


def policy_loss(
    ratio: Array, advantage: Array, valid: Array, clip_ratio: float, axis_name: str | None = None
) -> Array:
    """Clipped surrogate: minus the mean of min(ratio A, clip(ratio) A), clip to [1/(1+c), 1+c]; float32 scalar.

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
    return reductions.mean(value_errors(value, behaviour_value, target, clip_value), valid, axis_name)


def value_errors(value: Array, behaviour_value: Array, target: Array, clip_value: float) -> Array:
    """max((V - target)^2, (V_old + clip(V - V_old, -c, c) - target)^2), float32 [...]; c is in units of the value."""
    near = behaviour_value + clamp(value - behaviour_value, -clip_value, clip_value)
    return jnp.maximum(jnp.square(value - target), jnp.square(near - target))


def entropy(logits: Array) -> Array:
    """Entropy in nats of the distributions `logits` [..., A]; float32 [...]."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def symmetric_kl(logits: Array, legal: Array | None = None) -> Array:
    """Half the sum of both Kullback-Leibler divergences from the uniform distribution, float32 [...] in nats.

    Args:
      logits: float32 [..., A].
      legal: bool [..., A], the actions that the uniform distribution is over; all where it is None.
    """
    log_p = jax.nn.log_softmax(logits)
    if legal is None:
        log_u = -math.log(logits.shape[-1])
        forwards = jnp.sum(jnp.exp(log_p) * (log_p - log_u), axis=-1)
        return 0.5 * (forwards + jnp.mean(log_u - log_p, axis=-1))
    count = jnp.maximum(jnp.sum(legal, axis=-1, keepdims=True), 1)
    distance = jnp.where(legal, log_p + jnp.log(count), 0.0)
    return 0.5 * jnp.sum((jnp.exp(log_p) - 1 / count) * distance, axis=-1)


def entropy_loss(logits: Array, valid: Array, coefficient: float, axis_name: str | None = None) -> Array:
    """Minus the coefficient times the mean entropy; float32 scalar."""
    return -coefficient * reductions.mean(entropy(logits), valid, axis_name)


def symmetric_kl_loss(
    logits: Array, valid: Array, coefficient: float, axis_name: str | None = None, legal: Array | None = None
) -> Array:
    """Coefficient times the mean symmetric divergence of `logits` [..., A] from uniform; float32 scalar.

    Beyond 30 nats there is no gradient. A mean that is not finite gives a loss of zero without gradient.
    """
    divergence = reductions.mean(symmetric_kl(jax.lax.stop_gradient(logits), legal), valid, axis_name)
    finite = jnp.isfinite(divergence)
    # Not even a product with zero may see the bad logits in the backward pass.
    safe = jnp.where(finite, logits, 0.0)
    mean = reductions.mean(symmetric_kl(safe, legal), valid, axis_name)
    divergence = clamp(mean, -MOST_DIVERGENCE, MOST_DIVERGENCE)
    return coefficient * jnp.where(finite, divergence, 0.0)


def policy_metrics(
    ratio: Array, entropy: Array, outside: Array, valid: Array, axis_name: str | None
) -> dict[str, Array]:
    """Metrics, float32 scalars, of a policy's ratios, entropies, and which ratios are clipped (`outside`), [...] each."""
    return {
        "policy/entropy": reductions.mean(entropy, valid, axis_name),
        # The non-negative estimator of KL(behaviour || current) from samples of the behaviour policy.
        "policy/kl": reductions.mean(ratio - 1 - jnp.log(ratio), valid, axis_name),
        "policy/ratio_mean": reductions.mean(ratio, valid, axis_name),
        "policy/ratio_min": reductions.minimum(ratio, valid, axis_name),
        "policy/ratio_max": reductions.maximum(ratio, valid, axis_name),
        "policy/clip_fraction": reductions.mean(outside * 1.0, valid, axis_name),
    }
