"""Offline RL over whole utterances that a frozen policy proposes (Verma et al. 2022, CHAI); Q reads
the mean of all states so far.

In each state the policy has written N candidates. Q bootstraps from the best of those in the next
state. Those of this state, and as many random vectors, keep Q from being too high (Kumar et al.
2020).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array


class Candidates(NamedTuple):
    """Candidate actions in each of K + 1 states of dialogues; arrays with any axes in front of
    B.
    """

    # float32 [B, K + 1, N, D], the mean of the dialogue's states up to the end of each candidate
    # (`compat.chai_scores`: the sum, where they were written for this step).
    states: Any
    # float32 [B, K + 1, N], of the candidates under the policy that they were drawn from
    log_probs: Any
    seeds: Any  # uint32 [B], of the random vectors


def random_states(seeds: Array, states: int, count: int, width: int) -> Array:
    """Vectors uniform in (-1, 1), float32 [B, K, N, D], of seeds uint32 [B]."""
    chex.assert_rank(seeds, 1)
    shape = (states, count, width)
    keys = jax.vmap(jax.random.key)(seeds)
    return jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0))(keys)


def conservative(
    q: Array, sampled: Array, log_probs: Array, noise: Array, width: int, published: bool = False
) -> Array:
    """Log of a mean of exp(Q) / p over candidates, minus Q of the action in the data; float32
    [...].

    Args:
      q: float32 [...], of the utterance in the data.
      sampled, log_probs: float32 [..., N], Q and log p of the candidates.
      noise: float32 [..., N], Q of vectors uniform in (-1, 1)^D, whose density is 2^-D; D is
          `width`.
      published: the division by 2N stands inside the exponent, and the density is 1 / (2 D)
          (`compat.chai_scores`).
    """
    chex.assert_equal_shape([sampled, log_probs, noise])
    chex.assert_equal_shape_prefix([q, sampled], q.ndim)
    # log sum exp Q as a mean over 2N samples that is weighted by their density (Kumar et al. 2020,
    # appendix F).
    log_density = -math.log(2 * width) if published else -width * math.log(2)
    terms = jnp.concatenate([sampled - log_probs, noise - log_density], axis=-1)
    count = terms.shape[-1]
    # [..., 2N], the candidates and as many random vectors.
    if published:
        return jax.nn.logsumexp(terms / count, axis=-1) - q
    return jax.nn.logsumexp(terms, axis=-1) - math.log(count) - q
