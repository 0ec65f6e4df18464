"""Changes to caches between turns: candidates branch from a row's text, and the chosen one becomes part of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from motif_jax.lm.layers import KeyValues
from motif_jax.lm.model import Cache, EncodedPrompt


def taken(leaf: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """Takes `index` int32 [B, M] along `axis` of `leaf`; axis - 1 is B."""
    shape = (*[1] * (axis - 1), *index.shape, *[1] * (leaf.ndim - axis - 1))
    return jnp.take_along_axis(leaf, index.reshape(shape), axis=axis)


def _mapped(function: Callable[..., jax.Array], *caches: Cache) -> Cache:
    """Applies a function to all leaves except `slot`, which is that of the last cache."""
    same = caches[-1].slot
    return jax.tree.map(function, *(each._replace(slot=None) for each in caches))._replace(slot=same)  # type: ignore[arg-type]


def picked(cache: Cache, index: jax.Array) -> Cache:
    """The cache whose n-th continuation is continuation `index[b, n]` of `cache`; `index` int32 [B, M]."""
    return _mapped(lambda leaf: taken(leaf, index, 1), cache)


def beside(a: Cache, b: Cache) -> Cache:
    """Joins the continuations of two caches of the same rows; `slot` is that of `b`."""
    return _mapped(lambda x, y: jnp.concatenate([x, y], axis=1), a, b)


def as_prompt(cache: Cache) -> EncodedPrompt:
    """Turns each row's text into the prompt of its candidates."""
    keys, valid, written = jax.tree.map(lambda leaf: leaf[:, 0], (cache.keys, cache.valid, cache.written))
    return EncodedPrompt(keys, valid, written)


def grown(cache: Cache, more: Cache) -> Cache:
    """Appends the slots of `more`, a cache of the same rows."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(old, new, (0, 0, 0, cache.slot, 0))

    return Cache(
        jax.tree.map(put, cache.keys, more.keys),
        jax.lax.dynamic_update_slice(cache.valid, more.valid, (0, 0, cache.slot)),
        cache.slot + more.valid.shape[2],
        cache.written + more.written,
    )


def shortened(cache: Cache, keep: jax.Array) -> Cache:
    """Keeps the first `keep` int32 [B] tokens of each row."""
    order = jnp.cumsum(cache.valid, axis=2)
    valid = cache.valid & (order <= keep[:, None, None])
    return cache._replace(valid=valid, written=jnp.minimum(cache.written, keep[:, None]))


def rows_of(cache: Cache, places: jax.Array) -> Cache:
    """Takes the rows `places`."""
    return _mapped(lambda leaf: leaf[places], cache)


def squeezed(cache: Cache, capacity: int) -> Cache:
    """Removes the padding between tokens; the result has `capacity` slots."""
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
