"""Changes to caches between turns: candidates branch from a row's text, and the chosen one becomes
part of it.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from motif_jax.lm.layers import over_layers
from motif_jax.lm.model import Cache, EncodedPrompt


def taken(leaf: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """Takes `index` int32 [B, M] along `axis` of `leaf`; axis - 1 is B."""
    # The index broadcasts over all axes but B, at axis - 1, and N, at `axis`.
    axes_before = [1] * (axis - 1)
    axes_after = [1] * (leaf.ndim - axis - 1)
    shape = (*axes_before, *index.shape, *axes_after)
    return jnp.take_along_axis(leaf, index.reshape(shape), axis=axis)


def _mapped(function: Callable[..., jax.Array], *caches: Cache) -> Cache:
    """Applies a function to the arrays of all layers and of the tokens, but not to `slot`, which is
    that of the last cache.
    """
    keys = over_layers(function, *(cache.keys for cache in caches))
    valid = function(*(cache.valid for cache in caches))
    written = function(*(cache.written for cache in caches))
    # One number for all rows and continuations, which no pick or join of these changes.
    return Cache(keys, valid, caches[-1].slot, written)


def picked(cache: Cache, index: jax.Array) -> Cache:
    """The cache whose n-th continuation is continuation `index[b, n]` of `cache`; `index` int32
    [B, M].
    """
    return _mapped(lambda leaf: taken(leaf, index, 1), cache)


def join_continuations(a: Cache, b: Cache) -> Cache:
    """Joins the continuations of two caches of the same rows; `slot` is that of `b`."""
    return _mapped(lambda x, y: jnp.concatenate([x, y], axis=1), a, b)


def as_prompt(cache: Cache) -> EncodedPrompt:
    """Turns each row's text into the prompt of its candidates."""
    # A prompt has no axis N: its text is the first continuation.
    first = _mapped(lambda leaf: leaf[:, 0], cache)
    return EncodedPrompt(first.keys, first.valid, first.written)


def grown(cache: Cache, more: Cache) -> Cache:
    """Appends the slots of `more`, a cache of the same rows."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        # Slots are the fourth axis of a layer's [B, N, G, K, D]; the loop's axis of layers is
        # mapped over.
        return jax.lax.dynamic_update_slice(old, new, (0, 0, 0, cache.slot, 0))

    return Cache(
        over_layers(put, cache.keys, more.keys),
        jax.lax.dynamic_update_slice(cache.valid, more.valid, (0, 0, cache.slot)),
        cache.slot + more.valid.shape[2],
        cache.written + more.written,
    )


def shortened(cache: Cache, keep: jax.Array) -> Cache:
    """Keeps the first `keep` int32 [B] tokens of each row."""
    count = jnp.cumsum(cache.valid, axis=2)
    # Their keys stay, hidden: rows keep different numbers of tokens, and `slot` is one for all.
    # `squeezed` frees the slots.
    valid = cache.valid & (count <= keep[:, None, None])
    return cache._replace(valid=valid, written=jnp.minimum(cache.written, keep[:, None]))


def rows_of(cache: Cache, index: jax.Array) -> Cache:
    """Takes the rows `index`, int32 [R]."""
    return _mapped(lambda leaf: leaf[index], cache)


def prompts_of(prompt: EncodedPrompt, index: jax.Array) -> EncodedPrompt:
    """Takes the prompts `index`, int32 [R]."""
    keys = over_layers(lambda leaf: leaf[index], prompt.keys)
    return EncodedPrompt(keys, prompt.valid[index], prompt.length[index])


def squeezed(cache: Cache, capacity: int) -> Cache:
    """Removes the padding between tokens; the result has `capacity` slots."""
    # A stable sort: tokens come first and keep their order, padding after them.
    order = jnp.argsort(~cache.valid, axis=2, stable=True)

    def move(leaf: jax.Array, axis: int) -> jax.Array:
        shape = [*order.shape[:2], *[1] * (leaf.ndim - 2)]
        shape[axis] = order.shape[2]
        moved = jnp.take_along_axis(leaf, order.reshape(shape), axis=axis)
        free_slots = [(0, 0)] * leaf.ndim
        free_slots[axis] = (0, capacity - order.shape[2])
        return jnp.pad(moved, free_slots)

    keys = over_layers(lambda leaf: move(leaf, 3), cache.keys)
    # Rows write at one slot, so it is the first that is free in all of them.
    return Cache(keys, move(cache.valid, 2), jnp.max(cache.written), cache.written)
