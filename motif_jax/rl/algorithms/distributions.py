"""The policy's distribution over actions, from what a network gives: over numbered actions, or over
real numbers.

`outputs` are logits [..., A] where actions are numbered, and those of `nets.squashed_gaussian`
[..., 2 n] where they are n real numbers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets import categorical, squashed_gaussian
from motif_jax.rl.algorithms import losses


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
    return losses.log_probability(outputs, action)


def entropy(spec: EnvironmentSpec, outputs: Array) -> Array:
    """Entropy in nats, of real numbers differential entropy; float32 [...]."""
    if spec.action_size:
        return squashed_gaussian.entropy(jnp, outputs)
    return categorical.entropy(outputs)
