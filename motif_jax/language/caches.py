"""Caches between turns: candidates branch from a row's text, and the chosen one becomes part of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from motif_jax.language.layers import KeyValues
from motif_jax.language.model import Cache, EncodedPrompt


def taken(leaf: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """`leaf` with `index` int32 [B, M] taken along `axis`, before which stands B."""
    lead = (1,) * (axis - 1)
    return jnp.take_along_axis(
        leaf, index.reshape(*lead, *index.shape, *[1] * (leaf.ndim - axis - 1)), axis=axis
    )


def picked(cache: Cache, index: jax.Array) -> Cache:
    """The cache with continuation `index[b, n]` (int32 [B, M]) in the place of the n-th, as beams need it."""
    keys, valid, written = jax.tree.map(
        lambda leaf: taken(leaf, index, 1), (cache.keys, cache.valid, cache.written)
    )
    return Cache(keys, valid, cache.slot, written)


def beside(a: Cache, b: Cache) -> Cache:
    """Continuations of two caches of the same rows as one; the slot is the later's."""
    keys, valid, written = jax.tree.map(
        lambda x, y: jnp.concatenate([x, y], axis=1),
        (a.keys, a.valid, a.written),
        (b.keys, b.valid, b.written),
    )
    return Cache(keys, valid, b.slot, written)


def as_prompt(cache: Cache) -> EncodedPrompt:
    """A row's text as what its candidates share."""
    return EncodedPrompt(
        jax.tree.map(lambda leaf: leaf[:, 0], cache.keys), cache.valid[:, 0], cache.written[:, 0]
    )


def grown(cache: Cache, more: Cache) -> Cache:
    """A cache with the slots of another one, of the same rows, behind what is in it."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(old, new, (0, 0, 0, cache.slot, 0))

    return Cache(
        jax.tree.map(put, cache.keys, more.keys),
        jax.lax.dynamic_update_slice(cache.valid, more.valid, (0, 0, cache.slot)),
        cache.slot + more.valid.shape[2],
        cache.written + more.written,
    )


def shortened(cache: Cache, keep: jax.Array) -> Cache:
    """A cache of the first `keep` int32 [B] tokens of each row."""
    order = jnp.cumsum(cache.valid, axis=2)
    valid = cache.valid & (order <= keep[:, None, None])
    return cache._replace(valid=valid, written=jnp.minimum(cache.written, keep[:, None]))


def rows_of(cache: Cache, places: jax.Array) -> Cache:
    """A cache with the rows `places`."""
    keys, valid, written = jax.tree.map(lambda leaf: leaf[places], (cache.keys, cache.valid, cache.written))
    return Cache(keys, valid, cache.slot, written)


def squeezed(cache: Cache, capacity: int) -> Cache:
    """The cache without the padding between its tokens, with `capacity` slots."""
    order = jnp.argsort(~cache.valid, axis=2, stable=True)

    def move(leaf: jax.Array, axis: int) -> jax.Array:
        shape = [*order.shape[:2], *[1] * (leaf.ndim - 2)]
        shape[axis] = order.shape[2]
        moved = jnp.take_along_axis(leaf, order.reshape(shape), axis=axis)
        more = [(0, 0)] * leaf.ndim
        more[axis] = (0, capacity - order.shape[2])
        return jnp.pad(moved, more)

    keys = tuple(KeyValues(move(layer.keys, 3), move(layer.values, 3)) for layer in cache.keys)
    return Cache(keys, move(cache.valid, 2), jnp.max(cache.written), cache.written)
