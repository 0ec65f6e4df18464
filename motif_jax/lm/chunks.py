"""Applies functions to rows in chunks, so that memory never holds all logits of a batch.

Logits are [tokens, vocabulary]: 8 texts of 2,048 tokens with 128,256 entries take 8 GB in float32,
and as much again in the gradient. A chunk of 1,024 tokens takes 0.5 GB; the backward pass computes
it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sampling import token_log_probs


def in_chunks(function: Callable[..., Any], rows: Any, chunk: int | None) -> Any:
    """Computes `function(rows)` a chunk at a time; the backward pass computes each chunk again.

    The function maps a tree of arrays [R, ...] to a tree of arrays [R, ...], row by row; parameters
    that it closes over get gradients. `chunk` None: all rows at once, and nothing is computed
    again.
    """
    leaves = jax.tree.leaves(rows)
    chex.assert_equal_shape_prefix(leaves, 1)
    count = leaves[0].shape[0]
    if chunk is None or chunk >= count:
        return function(rows)
    chunks = math.ceil(count / chunk)

    def split(leaf: jax.Array) -> jax.Array:
        # A row that exists fills up the last chunk, so that no NaN can come of the padding alone.
        padding = jnp.broadcast_to(leaf[-1:], (chunks * chunk - count, *leaf.shape[1:]))
        return jnp.concatenate([leaf, padding]).reshape(chunks, chunk, *leaf.shape[1:])

    def join(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(chunks * chunk, *leaf.shape[2:])[:count]

    # `map` alone would keep each chunk's logits for the backward pass.
    results = jax.lax.map(jax.checkpoint(function), jax.tree.map(split, rows))
    return jax.tree.map(join, results)


def log_probs(
    model: LanguageModel,
    params: Any,
    states: jax.Array,
    tokens: jax.Array,
    chunk: int | None = None,
) -> jax.Array:
    """Log-probabilities float32 [...] of tokens int32 [...] after states [..., D], with the logits
    of one chunk at a time.
    """
    chex.assert_equal_shape_prefix([states, tokens], tokens.ndim)

    def chunk_log_probs(rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        row_states, row_tokens = rows
        return token_log_probs(model.logits(params, row_states), row_tokens)

    rows = (states.reshape(-1, states.shape[-1]), tokens.reshape(-1))
    return in_chunks(chunk_log_probs, rows, chunk).reshape(tokens.shape)
