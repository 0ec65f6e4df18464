"""Attention of several continuations of a prompt to its keys and values, which they share, and to their own.

Arrays have three leading axes: rows [B], continuations of each row [N], and tokens [S]. Shared keys have no axis N: they are
computed and kept once, in the forward pass and in the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm.layer_positions import Rotary
from motif_jax.nets import products

# Added to the scores of masked keys; finite, so that a row without any key has no NaN.
MASKED = -1e9


class Keys(NamedTuple):
    """Keys and values that queries look at.

    Attributes:
      keys, values: [B, G, K, D] where a row's continuations share them, else [B, N, G, K, D]; G is the number of
        key-value heads. Heads stand before tokens: each head's keys are one matrix, which is multiplied as it lies.
      bias: float32, added to the scores; broadcasts to [B, N, H, S, K].
    """

    keys: jax.Array
    values: jax.Array
    bias: jax.Array


def mask_bias(allowed: jax.Array) -> jax.Array:
    """Bias float32: 0 where `allowed`, `MASKED` elsewhere."""
    return jnp.where(allowed, 0.0, MASKED).astype(jnp.float32)


def attend(
    query: jax.Array, segments: Sequence[Keys], scale: float, drop: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Attention of queries [B, N, S, H, D] over all segments together, with one softmax in float32; in the dtype of `query`.

    H is a multiple of the segments' G. `drop` is dropout of the weights [B, G, N, H / G, S, K of all segments].
    """
    chex.assert_rank(query, 5)
    batch, branches, length, heads, width = query.shape
    groups = segments[0].keys.shape[-3]
    grouped = query.reshape(batch, branches, length, groups, heads // groups, width)
    grouped = grouped.transpose(0, 3, 1, 4, 2, 5)  # heads of a row first: [B, G, N, H / G, S, D]
    scores = jnp.concatenate([_scores(grouped, segment, scale) for segment in segments], axis=-1)
    weights = drop(jax.nn.softmax(scores, axis=-1).astype(query.dtype))
    total = jnp.zeros(grouped.shape, query.dtype)
    start = 0
    for segment in segments:
        stop = start + segment.keys.shape[-2]
        letters = f"bgnhsk,{_letters(segment)}->bgnhsd"
        total += products.einsum(letters, weights[..., start:stop], segment.values)
        start = stop
    return total.transpose(0, 2, 4, 1, 3, 5).reshape(query.shape)


def _letters(segment: Keys) -> str:
    return "bgkd" if segment.keys.ndim == 4 else "bngkd"


def _scores(query: jax.Array, segment: Keys, scale: float) -> jax.Array:
    """Scores float32 [B, G, N, H / G, S, K]."""
    chex.assert_rank(segment.bias, 5)
    letters = f"bgnhsd,{_letters(segment)}->bgnhsk"
    scores = products.einsum_float32(letters, query, segment.keys)
    bias = segment.bias
    groups = query.shape[1]
    split = (groups, bias.shape[2] // groups) if bias.shape[2] > 1 else (1, 1)
    bias = bias.reshape(*bias.shape[:2], *split, *bias.shape[3:])
    return scores * scale + bias.transpose(0, 2, 1, 3, 4, 5)


def window_bias(queries: jax.Array, keys: jax.Array, window: int) -> jax.Array:
    """Bias float32 [B, N, 1, S, K] of queries at positions int32 [B, N, S] over keys at positions int32 [B, N, K].

    A query sees the last `window` positions, its own among them; later ones are not hidden here.
    """
    chex.assert_rank([queries, keys], 3)
    distance = queries[..., :, None] - keys[..., None, :]
    return mask_bias(distance < window)[:, :, None]


def causal(length: int) -> jax.Array:
    """Bool [1, 1, 1, S, S]: a token sees itself and those before it."""
    return jnp.tril(jnp.ones((length, length), bool))[None, None, None]


class Rotation(NamedTuple):
    """Sines and cosines float32 [B, N, S, 1, D / 2] of rotary positions, the same for all heads and layers."""

    sine: jax.Array
    cosine: jax.Array


def rotation(positions: jax.Array, rotary: Rotary, width: int) -> Rotation:
    """The rotation at positions int32 [B, N, S] of heads of `width` (Su et al. 2021)."""
    chex.assert_rank(positions, 3)
    angles = positions[..., None, None].astype(jnp.float32) * rotary_frequencies(rotary, width)
    # The barrier keeps a CPU's compiler from computing both again in every layer, where it would fuse them with what they turn.
    return jax.lax.optimization_barrier(Rotation(jnp.sin(angles), jnp.cos(angles)))


def rotate(x: jax.Array, angles: Rotation) -> jax.Array:
    """Turns `x` [B, N, S, H, D], the first half of a head with the second, as transformers' Llama has them."""
    chex.assert_rank(x, 5)
    half = x.shape[-1] // 2
    first = x[..., :half].astype(jnp.float32)
    second = x[..., half:].astype(jnp.float32)
    turned = jnp.concatenate(
        [
            first * angles.cosine - second * angles.sine,
            second * angles.cosine + first * angles.sine,
        ],
        axis=-1,
    )
    return turned.astype(x.dtype)


def rotary_frequencies(rotary: Rotary, width: int) -> jax.Array:
    """Radians per position, float32 [width / 2]."""
    # In transformers' order of operations: by another rounding of a frequency, a key 2,000 tokens away is turned by 3e-4 radians more.
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    # numpy's powers of float32 are another last bit on some processors, for one number in five.
    powers = (np.float64(rotary.theta) ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = jnp.asarray(1 / powers)
    if rotary.kind == "linear":
        return frequencies / rotary.factor
    if rotary.kind == "llama3":
        # Long waves are stretched, short ones kept, those in between interpolated.
        turns = rotary.original_length * frequencies / (2 * jnp.pi)
        low = rotary.low_frequency_factor
        high = rotary.high_frequency_factor
        unscaled = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
        return frequencies * (unscaled + (1 - unscaled) / rotary.factor)
    return frequencies


def relative_buckets(
    query: jax.Array, key: jax.Array, buckets: int, distance: int, both_ways: bool
) -> jax.Array:
    """Buckets int32 [S, K] of the distances from queries to keys, at positions int32 [S] and [K] (Raffel et al. 2020, section 2.1).

    They are exact when near, then logarithmic; from `distance` on all keys fall into the last bucket. With `both_ways` (encoders) keys
    after the query have buckets of their own.
    """
    chex.assert_rank([query, key], 1)
    relative = key[None, :] - query[:, None]
    offset = jnp.zeros_like(relative)
    if both_ways:
        buckets //= 2
        offset = jnp.where(relative > 0, buckets, 0)
        relative = jnp.abs(relative)
    else:
        relative = jnp.maximum(-relative, 0)
    exact = buckets // 2
    ratio = jnp.maximum(relative, 1).astype(jnp.float32) / exact
    far = exact + (jnp.log(ratio) / jnp.log(distance / exact) * (buckets - exact)).astype(jnp.int32)
    return offset + jnp.where(relative < exact, relative, jnp.minimum(far, buckets - 1))
