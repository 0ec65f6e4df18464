"""The policy's distribution over actions or tokens, from what a network gives: over numbered
choices, or over real numbers.

`outputs` are logits [..., A] where actions are numbered, and those of `nets.squashed_gaussian`
[..., 2 n] where they are n real numbers.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets import squashed_gaussian


def draw(spec: EnvironmentSpec, outputs: Array, key: Array) -> tuple[Array, Array]:
    """Draws an action for each of N rows; returns actions, int32 [N] or float32 [N, n], and their
    log-probabilities, float32 [N].
    """
    if spec.action_size:
        normal = jax.random.normal(key, (len(outputs), spec.action_size))
        action = squashed_gaussian.squashed(jnp, outputs, normal)
        # Of the action as it is stored, since the learner computes it from that, too.
        return action, squashed_gaussian.log_prob(jnp, outputs, action)
    log_probs = jax.nn.log_softmax(outputs)
    action = jax.random.categorical(key, log_probs).astype(jnp.int32)
    return action, jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]


def log_prob(spec: EnvironmentSpec, outputs: Array, action: Array) -> Array:
    """Log-probability, of real numbers log-density, of `action` in nats; float32 [...]."""
    if spec.action_size:
        return squashed_gaussian.log_prob(jnp, outputs, action)
    return categorical_log_prob(outputs, action)


def entropy(spec: EnvironmentSpec, outputs: Array) -> Array:
    """Entropy in nats, of real numbers differential entropy; float32 [...]."""
    if spec.action_size:
        return squashed_gaussian.entropy(jnp, outputs)
    return categorical_entropy(outputs)


def categorical_log_prob(logits: Array, action: Array) -> Array:
    """Log-probability in nats of `action` [...] under `logits` [..., A]; float32 [...]."""
    chex.assert_equal_shape_prefix([logits, action], action.ndim)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def categorical_entropy(logits: Array) -> Array:
    """Entropy in nats, -sum(p log p), of the distributions `logits` float [..., A]; [...], of the
    same type.

    A choice whose logit is -inf does not exist: it adds nothing and has no gradient. Where a logit
    is NaN, or all are -inf, the entropy is NaN, too: a training must notice it.
    """
    log_p = jax.nn.log_softmax(logits)
    is_possible = log_p != -jnp.inf
    # Replaced before the product: zero times the infinite logarithm is NaN, and so is its gradient.
    safe_log_p = jnp.where(is_possible, log_p, 0.0)
    return -jnp.sum(jnp.where(is_possible, jnp.exp(safe_log_p) * safe_log_p, 0.0), axis=-1)
