"""Attention of several continuations of a prompt to its keys and values, which they share, and to
their own.

Arrays have three leading axes: rows [B], continuations of each row [N], and tokens [S]. Shared keys
have no axis N: they are computed once, and kept once unless many queries look at them on a CPU
(`attends_in_one_pass`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm.config import Rotary
from motif_jax.nets import products

# Added to the scores of masked keys; finite, so that a row without any key has no NaN.
MASKED = -1e9
# See `query_blocks`.
_BLOCKS = 4
_QUERIES_OF_BLOCK = 64
# See `attends_in_one_pass`.
_MIN_QUERIES_OF_PASS = 32


class Keys(NamedTuple):
    """Keys and values that queries look at.

    Attributes:
      keys, values: [B, G, K, D] where a row's continuations share them, else [B, N, G, K, D]; G is
        the number of key-value heads. Heads stand before tokens: each head's keys are one matrix,
        which is multiplied as it lies.
      bias: float32, added to the scores; broadcasts to [B, N, H, S, K].
      causal: the last keys are those of the queries' own tokens, and `bias` hides later ones.
    """

    keys: jax.Array
    values: jax.Array
    bias: jax.Array
    causal: bool = False

    def of_queries(self, start: int, stop: int, length: int) -> Keys:
        """What the queries from `start` up to the one before `stop`, of `length`, look at."""
        # One row of bias for all queries, such as a mask of padding, stays one.
        bias = self.bias if self.bias.shape[3] == 1 else self.bias[:, :, :, start:stop]
        if not self.causal:
            return self._replace(bias=bias)
        # Those before the queries' own tokens are seen by all of them.
        count = self.keys.shape[-2] - length + stop
        return Keys(self.keys[..., :count, :], self.values[..., :count, :], bias[..., :count])


def mask_bias(allowed: jax.Array) -> jax.Array:
    """Bias float32: 0 where `allowed`, `MASKED` elsewhere."""
    return jnp.where(allowed, 0.0, MASKED).astype(jnp.float32)


def attend(
    query: jax.Array,
    segments: Sequence[Keys],
    scale: float,
    drop: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Attention of queries [B, N, S, H, D] over all segments together, with one softmax in float32;
    in the dtype of `query`.

    H is a multiple of the segments' G. `drop` is dropout of the weights [B, G, N, H / G, S, K of
    all segments]; None: there is none.
    """
    chex.assert_rank(query, 5)
    branches, length = query.shape[1:3]
    # One draw of dropout is for all queries, so that its numbers do not depend on the blocks.
    bounds = [(0, length)] if drop is not None else query_blocks(length)
    in_one_pass = drop is None and attends_in_one_pass(length)
    if in_one_pass:
        # Once for all blocks of queries: the copy of the keys is the cost of one pass.
        segments = [_joined(segments, branches)]
    blocks = []
    for start, stop in bounds:
        block = query[:, :, start:stop]
        visible = [segment.of_queries(start, stop, length) for segment in segments]
        if in_one_pass:
            blocks.append(_attend_in_one_pass(block, visible[0], scale))
        else:
            blocks.append(_attend(block, visible, scale, drop))
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, axis=2)


def query_blocks(length: int) -> list[tuple[int, int]]:
    """The bounds (first, last + 1) of the queries whose scores are computed at a time. Only this
    function decides it by platform.

    A CPU computes the scores of a block in its caches, and those of keys that come after all
    queries of a block not at all: 1.5 to 2.6 times as fast as all scores at once, with 256 and 360
    tokens. More blocks gain nothing and make programs longer. On a GPU all scores are computed at
    once.
    """
    if jax.default_backend() != "cpu":
        return [(0, length)]
    count = min(_BLOCKS, max(1, length // _QUERIES_OF_BLOCK))
    return [(length * number // count, length * (number + 1) // count) for number in range(count)]


def attends_in_one_pass(length: int) -> bool:
    """Whether `length` queries look at the keys of all segments as one. Only this function decides
    it by platform.

    XLA's CPU compiler makes one pass of a product, its bias, maximum and exponential if there is
    one segment, and the scores have the axes of their product. Otherwise it writes, copies and
    reads all scores between them: attention of 360 tokens took twice as long. For few queries the
    copy of the keys costs more than that. On a GPU groups stay an axis of their own, over which
    heads may be split (`core.devices.sharding`).
    """
    return jax.default_backend() == "cpu" and length >= _MIN_QUERIES_OF_PASS


def _joined(segments: Sequence[Keys], branches: int) -> Keys:
    """The keys and values of all segments as one, [B, N, G, K, D]; the last may be causal."""
    keys = [_of_branches(segment.keys, segment, branches) for segment in segments]
    values = [_of_branches(segment.values, segment, branches) for segment in segments]
    if len(segments) == 1:
        return segments[0]._replace(keys=keys[0], values=values[0])
    axes = np.broadcast_shapes(*(segment.bias.shape[:4] for segment in segments))
    biases = [
        jnp.broadcast_to(segment.bias, (*axes, segment.keys.shape[-2])) for segment in segments
    ]
    return Keys(
        jnp.concatenate(keys, axis=-2),
        jnp.concatenate(values, axis=-2),
        jnp.concatenate(biases, axis=-1),
        segments[-1].causal,
    )


def _of_branches(x: jax.Array, segment: Keys, branches: int) -> jax.Array:
    """Keys or values of a segment for each branch, [B, N, G, K, D]."""
    if segment.keys.ndim == 5:
        return x
    if branches == 1:
        return x[:, None]
    batch, *shape = x.shape
    # In float32, as which the gradients of the branches are added.
    copies = jnp.broadcast_to(x.astype(jnp.float32)[:, None], (batch, branches, *shape))
    return copies.astype(x.dtype)


def _attend_in_one_pass(query: jax.Array, segment: Keys, scale: float) -> jax.Array:
    """Attention to keys [B, N, G, K, D]: one matrix of queries, and of scores, for each matrix of
    keys.
    """
    batch, branches, length, heads, width = query.shape
    groups, count = segment.keys.shape[2:4]
    matrices = batch * branches * groups
    shared_heads = heads // groups
    grouped = query.reshape(batch, branches, length, groups, shared_heads, width)
    # [B, N, G, H / G, S, D], then [M, H / G * S, D]: XLA fuses what follows a product only where
    # both have the same axes.
    by_group = grouped.transpose(0, 1, 3, 4, 2, 5)
    queries = by_group.reshape(matrices, shared_heads * length, width)
    keys = segment.keys.reshape(matrices, count, width)
    values = segment.values.reshape(matrices, count, width)
    scores = products.einsum_float32("mqd,mkd->mqk", queries, keys) * scale
    scores += _bias_of_matrices(segment.bias, (batch, branches, groups), (shared_heads, length))
    # The softmax does not change with what is subtracted, so no gradient goes through it.
    greatest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True, initial=-jnp.inf))
    # Rounded to the dtype before they are summed, so that the divisor is the sum of the factors.
    weights = jnp.exp(scores - greatest).astype(query.dtype)
    normaliser = weights.sum(axis=-1, keepdims=True, dtype=jnp.float32)
    attended = _divided(products.einsum("mqk,mkd->mqd", weights, values), normaliser)
    return attended.reshape(by_group.shape).transpose(0, 1, 4, 2, 3, 5).reshape(query.shape)


def _bias_of_matrices(
    bias: jax.Array, matrices: tuple[int, int, int], queries: tuple[int, int]
) -> jax.Array:
    """A bias [B, N, H, S, K], whose axes may be 1, as one that broadcasts to [matrices, queries, K]
    of the sizes (B, N, G) and (H / G, S).
    """
    batch, branches, heads, length, keys = bias.shape
    # A bias that is the same for all heads stays one, and is not written out for each.
    groups = (matrices[2], queries[0]) if heads > 1 else (1, 1)
    split = bias.reshape(batch, branches, *groups, length, keys)
    if split.shape[:3] != (1, 1, 1):
        split = jnp.broadcast_to(split, (*matrices, *split.shape[3:]))
    if split.shape[3:5] != (1, 1):
        split = jnp.broadcast_to(split, (*split.shape[:3], *queries, keys))
    return split.reshape(math.prod(split.shape[:3]), math.prod(split.shape[3:5]), keys)


def _attend(
    query: jax.Array,
    segments: Sequence[Keys],
    scale: float,
    drop: Callable[[jax.Array], jax.Array] | None,
) -> jax.Array:
    batch, branches, length, heads, width = query.shape
    groups = segments[0].keys.shape[-3]
    grouped = query.reshape(batch, branches, length, groups, heads // groups, width)
    grouped = grouped.transpose(0, 3, 1, 4, 2, 5)  # heads of a row first: [B, G, N, H / G, S, D]
    scores = [_scores(grouped, segment, scale) for segment in segments]
    # One softmax over all segments: the greatest score of any, and below the sum of all weights.
    greatest = functools.reduce(
        jnp.maximum, [part.max(axis=-1, keepdims=True, initial=-jnp.inf) for part in scores]
    )
    greatest = jax.lax.stop_gradient(greatest)
    weights = [jnp.exp(part - greatest).astype(query.dtype) for part in scores]
    normaliser = functools.reduce(
        jnp.add, [part.sum(axis=-1, keepdims=True, dtype=jnp.float32) for part in weights]
    )
    if drop is not None:
        ends = np.cumsum([part.shape[-1] for part in weights])
        # One draw over the joined keys, so that its numbers do not depend on the segments' bounds.
        weights = jnp.split(drop(jnp.concatenate(weights, axis=-1)), ends[:-1], axis=-1)
    total = jnp.zeros(grouped.shape, query.dtype)
    for part, segment in zip(weights, segments, strict=True):
        # Shared keys [B, G, K, D] lack the letter n: all continuations are rows of one product.
        total += products.einsum(f"bgnhsk,{_letters(segment)}->bgnhsd", part, segment.values)
    # The sums are divided and not the weights, of which there are many more.
    attended = _divided(total, normaliser)
    return attended.transpose(0, 2, 4, 1, 3, 5).reshape(query.shape)


@jax.checkpoint
def _divided(total: jax.Array, normaliser: jax.Array) -> jax.Array:
    """`total` by float32 `normaliser`, in its dtype; the backward pass computes it again, so that
    no float32 steps are held for it.
    """
    return (total.astype(jnp.float32) / normaliser).astype(total.dtype)


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
    """Bias float32 [B, N, 1, S, K] of queries at positions int32 [B, N, S] over keys at positions
    int32 [B, N, K].

    A query sees the last `window` positions, its own among them; later ones are not hidden here.
    """
    chex.assert_rank([queries, keys], 3)
    distance = queries[..., :, None] - keys[..., None, :]
    return mask_bias(distance < window)[:, :, None]


def causal(length: int) -> jax.Array:
    """Bool [1, 1, 1, S, S]: a token sees itself and those before it."""
    return jnp.tril(jnp.ones((length, length), bool))[None, None, None]


class Rotation(NamedTuple):
    """Sines and cosines float32 [B, N, S, 1, D / 2] of rotary positions, the same for all heads and
    layers.
    """

    sine: jax.Array
    cosine: jax.Array


def rotation(positions: jax.Array, rotary: Rotary, width: int) -> Rotation:
    """The rotation at positions int32 [B, N, S] of heads of `width` (Su et al. 2021)."""
    chex.assert_rank(positions, 3)
    frequencies = rotary_frequencies(rotary, width)

    def of_row(row: jax.Array) -> Rotation:
        # In float32, whatever the dtype of the layers: bfloat16 holds whole numbers only up to 256.
        angles = row[:, None].astype(jnp.float32) * frequencies
        return Rotation(jnp.sin(angles), jnp.cos(angles))

    batch, branches, length = positions.shape
    rows = positions.reshape(batch * branches, length)
    if jax.default_backend() == "cpu" and length > 1:
        # XLA's CPU compiler would compute sines again for every head of every layer; what a loop
        # has made it takes as it is.
        turns = jax.lax.map(of_row, rows)
    else:
        turns = jax.vmap(of_row)(rows)
    return jax.tree.map(lambda leaf: leaf.reshape(*positions.shape, 1, width // 2), turns)


def rotate(x: jax.Array, angles: Rotation) -> jax.Array:
    """Turns `x` [B, N, S, H, D], the first half of a head with the second, as transformers' Llama
    has them.
    """
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
    # In transformers' order of operations: by another rounding of a frequency, a key 2,000 tokens
    # away is turned by 3e-4 radians more.
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    # numpy's powers of float32 are another last bit on some processors, for one number in five.
    powers = (np.float64(rotary.theta) ** exponents.astype(np.float64)).astype(np.float32)
    frequencies = jnp.asarray(1 / powers)
    if rotary.kind == "linear":
        return frequencies / rotary.factor
    if rotary.kind == "llama3":
        # Long waves are stretched, short ones kept, those in between interpolated.
        # How often each frequency turns within the length that the model was first trained with.
        turns = rotary.original_length * frequencies / (2 * jnp.pi)
        low = rotary.low_frequency_factor
        high = rotary.high_frequency_factor
        unscaled = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
        return frequencies * (unscaled + (1 - unscaled) / rotary.factor)
    return frequencies


def relative_buckets(
    query: jax.Array, key: jax.Array, buckets: int, distance: int, both_ways: bool
) -> jax.Array:
    """Buckets int32 [S, K] of the distances from queries to keys, at positions int32 [S] and [K]
    (Raffel et al. 2020, section 2.1).

    They are exact when near, then logarithmic; from `distance` on all keys fall into the last
    bucket. With `both_ways` (encoders) keys after the query have buckets of their own.
    """
    chex.assert_rank([query, key], 1)
    relative = key[None, :] - query[:, None]
    offset = jnp.zeros_like(relative)
    if both_ways:
        buckets //= 2
        offset = jnp.where(relative > 0, buckets, 0)
        relative = jnp.abs(relative)
    else:
        # A decoder's mask hides later keys, so that their bucket does not matter.
        relative = jnp.maximum(-relative, 0)
    exact = buckets // 2
    # At least 1, since near keys have the exact bucket and need only a finite logarithm.
    ratio = jnp.maximum(relative, 1).astype(jnp.float32) / exact
    far = exact + (jnp.log(ratio) / jnp.log(distance / exact) * (buckets - exact)).astype(jnp.int32)
    return offset + jnp.where(relative < exact, relative, jnp.minimum(far, buckets - 1))
