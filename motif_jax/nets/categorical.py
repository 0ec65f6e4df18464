"""The policy over numbered choices, actions or tokens, by their logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def entropy(logits: Array) -> Array:
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
