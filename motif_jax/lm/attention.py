"""Attention of several continuations of a prompt to its keys and values, which they share, and to
their own.

Arrays have three leading axes: rows [B], continuations of each row [N], and tokens [S]. Shared keys
have no axis N: they are computed and kept once, in the forward pass and in the gradient.
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

from motif_jax.core.devices import platforms
from motif_jax.lm.layer_positions import Rotary
from motif_jax.nets import products

# Added to the scores of masked keys; finite, so that a row without any key has no NaN.
MASKED = -1e9
# See `query_blocks`.
_BLOCKS = 4
_QUERIES_OF_BLOCK = 64
# See `joins_keys`.
_QUERIES_OF_COPY = 32


class Keys(NamedTuple):
    """Keys and values that queries look at.

    Attributes:
      keys, values: [B, G, K, D] where a row's continuations share them, else [B, N, G, K, D]; G is
        the number of key-value heads. Heads stand before tokens: each head's keys are one matrix,
        which is multiplied as it lies.
      bias: float32, added to the scores; broadcasts to [B, N, H, S, K].
      causal: the keys are those of the queries' own tokens, and `bias` hides later ones.
    """

    keys: jax.Array
    values: jax.Array
    bias: jax.Array
    causal: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether a row's continuations share them."""
        return self.keys.ndim == 4

    def matrices(self, x: jax.Array) -> jax.Array:
        """`keys` or `values` as [matrices, K, D], see `_Rows`."""
        return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])

    def of_queries(self, start: int, stop: int) -> Keys:
        """What the queries from `start` up to the one before `stop` look at."""
        bias = self.bias if self.bias.shape[3] == 1 else self.bias[:, :, :, start:stop]
        if not self.causal:
            return self._replace(bias=bias)
        return Keys(self.keys[..., :stop, :], self.values[..., :stop, :], bias[..., :stop])


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
    length = query.shape[2]
    # One draw of dropout is for all queries, so that its numbers do not depend on the blocks.
    bounds = [(0, length)] if drop is not None else query_blocks(length)
    blocks = []
    for start, stop in bounds:
        visible = [segment.of_queries(start, stop) for segment in segments]
        if len(visible) > 1 and joins_keys(stop - start):
            visible = [_joined(visible, query.shape[1], stop - start)]
        blocks.append(_attend(query[:, :, start:stop], visible, scale, drop))
    return blocks[0] if len(blocks) == 1 else jnp.concatenate(blocks, axis=2)


def query_blocks(length: int) -> list[tuple[int, int]]:
    """The bounds (first, last + 1) of the queries whose scores are computed at a time. Only this
    function decides it by platform.

    A CPU computes the scores of a block in its caches, and those of keys that come after all
    queries of a block not at all: 1.5 to 2.6 times as fast as all scores at once, with 256 and 360
    tokens. More blocks gain nothing and make programs longer. On a GPU all scores are computed at
    once.
    """
    if platforms.traced() != platforms.CPU:
        return [(0, length)]
    count = min(_BLOCKS, max(1, length // _QUERIES_OF_BLOCK))
    return [(length * number // count, length * (number + 1) // count) for number in range(count)]


def joins_keys(length: int) -> bool:
    """Whether `length` queries look at one copy of the keys of all segments. Only this function
    decides it by platform.

    A CPU computes the attention to one segment in one pass (see `_Rows`), which gains more than the
    copy costs unless there are few queries. On a GPU shared keys are not copied.
    """
    return platforms.traced() == platforms.CPU and length >= _QUERIES_OF_COPY


def _joined(segments: Sequence[Keys], branches: int, length: int) -> Keys:
    """The keys and values of all segments as one, which has the axis N if a segment has it."""
    is_shared = all(segment.is_shared for segment in segments)
    keys = []
    values = []
    for segment in segments:
        keys.append(segment.keys)
        values.append(segment.values)
        if segment.is_shared and not is_shared:
            keys[-1] = _of_branches(segment.keys, branches)
            values[-1] = _of_branches(segment.values, branches)
    shapes = [segment.bias.shape for segment in segments]
    batch, _, heads = np.max([shape[:3] for shape in shapes], axis=0)
    biases = [
        jnp.broadcast_to(segment.bias, (batch, branches, heads, length, segment.bias.shape[-1]))
        for segment in segments
    ]
    return Keys(
        jnp.concatenate(keys, axis=-2),
        jnp.concatenate(values, axis=-2),
        jnp.concatenate(biases, axis=-1),
    )


def _of_branches(shared: jax.Array, branches: int) -> jax.Array:
    """Shared keys or values [B, G, K, D] for each branch, [B, N, G, K, D]."""
    batch, *shape = shared.shape
    return jnp.broadcast_to(shared[:, None], (batch, branches, *shape))


def _attend(
    query: jax.Array,
    segments: Sequence[Keys],
    scale: float,
    drop: Callable[[jax.Array], jax.Array] | None,
) -> jax.Array:
    batch, branches, length, heads, width = query.shape
    groups = segments[0].keys.shape[-3]
    rows = _Rows(batch, branches, groups, heads // groups, length)
    grouped = query.reshape(batch, branches, length, groups, rows.heads_of_group, width)
    by_branch = grouped.transpose(0, 1, 3, 4, 2, 5).reshape(
        batch * branches * groups, rows.heads_of_group * length, width
    )
    by_group = rows.by_group(by_branch)

    scores = []
    for segment in segments:
        of_segment = by_group if segment.is_shared else by_branch
        scores.append(_scores(of_segment, segment, scale, rows))
    maxima = [part.max(axis=-1, keepdims=True, initial=-jnp.inf) for part in scores]
    greatest = jax.lax.stop_gradient(
        functools.reduce(jnp.maximum, _all_by_group(maxima, segments, rows))
    )
    weights = []
    for part, segment in zip(scores, segments, strict=True):
        subtracted = greatest if segment.is_shared else rows.by_branch(greatest)
        weights.append(jnp.exp(part - subtracted).astype(query.dtype))
    sums = [part.sum(axis=-1, keepdims=True, dtype=jnp.float32) for part in weights]
    normaliser = functools.reduce(jnp.add, _all_by_group(sums, segments, rows))
    if drop is not None:
        weights = _dropped(weights, segments, rows, drop)
    attended = []
    for part, segment in zip(weights, segments, strict=True):
        attended.append(products.einsum("mrk,mkd->mrd", part, segment.matrices(segment.values)))
    total = functools.reduce(jnp.add, _all_by_group(attended, segments, rows))
    # The sums are divided and not the weights, of which there are many more.
    divided = _divided(total, normaliser)
    split = divided.reshape(batch, groups, branches, rows.heads_of_group, length, width)
    return split.transpose(0, 2, 4, 1, 3, 5).reshape(query.shape)


class _Rows(NamedTuple):
    """The queries as rows of matrices, of which there is one for each matrix of keys.

    Scores have the three axes of their product, [matrices, rows, K]. Then XLA's CPU compiler
    computes product, bias, maximum and exponential in one pass; with groups, branches, heads and
    tokens as axes of their own, or a batch of size 1, it writes and copies all scores between them,
    and attention of 360 tokens takes twice as long.

    * By group, for keys that branches share: [B * G, N * H / G * S, ...].
    * By branch, for keys of their own: [B * N * G, H / G * S, ...].

    Without branches both are the same.
    """

    batch: int  # B
    branches: int  # N
    groups: int  # G
    heads_of_group: int  # H / G
    length: int  # S

    def by_group(self, x: jax.Array) -> jax.Array:
        """Rows by branch as rows by group."""
        if self.branches == 1:
            return x
        _, rows, width = x.shape
        apart = x.reshape(self.batch, self.branches, self.groups, rows, width)
        matrices = self.batch * self.groups
        return apart.transpose(0, 2, 1, 3, 4).reshape(matrices, self.branches * rows, width)

    def by_branch(self, x: jax.Array) -> jax.Array:
        """Rows by group as rows by branch."""
        if self.branches == 1:
            return x
        _, rows, width = x.shape
        rows //= self.branches
        apart = x.reshape(self.batch, self.groups, self.branches, rows, width)
        matrices = self.batch * self.branches * self.groups
        return apart.transpose(0, 2, 1, 3, 4).reshape(matrices, rows, width)

    def bias(self, bias: jax.Array, is_shared: bool) -> jax.Array:
        """A bias [B, N, H, S, K], or 1 for any axis, as one that broadcasts to the scores."""
        batch, branches, heads, length, keys = bias.shape
        group_heads = (self.groups, self.heads_of_group) if heads > 1 else (1, 1)
        split = bias.reshape(batch, branches, *group_heads, length, keys)
        if is_shared:
            by_group = split.transpose(0, 2, 1, 3, 4, 5)
            matrices = _merged(by_group, 0, (self.batch, self.groups))
            return _merged(matrices, 1, (self.branches, self.heads_of_group, self.length))
        matrices = _merged(split, 0, (self.batch, self.branches, self.groups))
        return _merged(matrices, 1, (self.heads_of_group, self.length))


def _merged(x: jax.Array, axis: int, sizes: Sequence[int]) -> jax.Array:
    """`x` with the axes from `axis` on, each of its size in `sizes` or 1, as one; of size 1 if all
    are 1.
    """
    before = x.shape[:axis]
    after = x.shape[axis + len(sizes) :]
    if all(size == 1 for size in x.shape[axis : axis + len(sizes)]):
        return x.reshape(*before, 1, *after)
    return jnp.broadcast_to(x, (*before, *sizes, *after)).reshape(*before, math.prod(sizes), *after)


def _all_by_group(
    parts: Sequence[jax.Array], segments: Sequence[Keys], rows: _Rows
) -> list[jax.Array]:
    return [
        part if segment.is_shared else rows.by_group(part)
        for part, segment in zip(parts, segments, strict=True)
    ]


def _dropped(
    weights: Sequence[jax.Array],
    segments: Sequence[Keys],
    rows: _Rows,
    drop: Callable[[jax.Array], jax.Array],
) -> list[jax.Array]:
    """The weights of all segments after one draw of dropout."""
    by_group = _all_by_group(weights, segments, rows)
    ends = np.cumsum([part.shape[-1] for part in by_group])
    together = jnp.concatenate(by_group, axis=-1)
    shape = (rows.batch, rows.groups, rows.branches, rows.heads_of_group, rows.length)
    apart = together.reshape(*shape, together.shape[-1])
    kept = jnp.split(drop(apart).reshape(together.shape), ends[:-1], axis=-1)
    return [
        part if segment.is_shared else rows.by_branch(part)
        for part, segment in zip(kept, segments, strict=True)
    ]


@jax.checkpoint
def _divided(total: jax.Array, normaliser: jax.Array) -> jax.Array:
    """`total` by float32 `normaliser`, in its dtype; the backward pass computes it again, so that
    no float32 steps are held for it.
    """
    return (total.astype(jnp.float32) / normaliser).astype(total.dtype)


def _scores(query: jax.Array, segment: Keys, scale: float, rows: _Rows) -> jax.Array:
    """Scores float32 [matrices, rows, K]."""
    chex.assert_rank(segment.bias, 5)
    scores = products.einsum_float32("mrd,mkd->mrk", query, segment.matrices(segment.keys))
    return scores * scale + rows.bias(segment.bias, segment.is_shared)


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
        angles = row[:, None].astype(jnp.float32) * frequencies
        return Rotation(jnp.sin(angles), jnp.cos(angles))

    batch, branches, length = positions.shape
    rows = positions.reshape(batch * branches, length)
    if platforms.traced() == platforms.CPU and length > 1:
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
        relative = jnp.maximum(-relative, 0)
    exact = buckets // 2
    ratio = jnp.maximum(relative, 1).astype(jnp.float32) / exact
    far = exact + (jnp.log(ratio) / jnp.log(distance / exact) * (buckets - exact)).astype(jnp.int32)
    return offset + jnp.where(relative < exact, relative, jnp.minimum(far, buckets - 1))
