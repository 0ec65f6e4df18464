"""Mean and range of numbers over micro-batches and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp


class Spread(NamedTuple):
    """Sum, number of entries, minimum and maximum; float32 scalars."""

    total: jax.Array
    entries: jax.Array
    minimum: jax.Array
    maximum: jax.Array


def spread(values: jax.Array, mask: jax.Array) -> Spread:
    """The spread of `values` float32 [...] under `mask` bool [...], without gradient."""
    chex.assert_equal_shape([values, mask])
    values = jax.lax.stop_gradient(values)
    return Spread(
        jnp.sum(jnp.where(mask, values, 0.0)),
        jnp.sum(mask, dtype=jnp.float32),
        jnp.min(values, initial=jnp.inf, where=mask),
        jnp.max(values, initial=-jnp.inf, where=mask),
    )


def _is_spread(node: Any) -> bool:
    return isinstance(node, Spread)


def added(one: Any, other: Any) -> Any:
    """Adds two trees; joins the spreads in them."""

    def add(x: Any, y: Any) -> Any:
        if not _is_spread(x):
            return x + y
        return Spread(
            x.total + y.total,
            x.entries + y.entries,
            jnp.minimum(x.minimum, y.minimum),
            jnp.maximum(x.maximum, y.maximum),
        )

    return jax.tree.map(add, one, other, is_leaf=_is_spread)


def nothing(tree: Any) -> Any:
    """The zero of `added` for a tree of arrays or shapes: zeros, and spreads of no numbers."""

    def none(leaf: Any) -> Any:
        if not _is_spread(leaf):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return Spread(jnp.float32(0), jnp.float32(0), jnp.float32(jnp.inf), jnp.float32(-jnp.inf))

    return jax.tree.map(none, tree, is_leaf=_is_spread)


def over_devices(tree: Any, axis: str) -> Any:
    """Adds the trees of all devices, as `added` does."""
    if jax.lax.axis_size(axis) == 1:  # a sum over one device would be a copy
        return tree

    def reduce(leaf: Any) -> Any:
        if not _is_spread(leaf):
            return jax.lax.psum(leaf, axis)
        # Divided only in `named`, since devices may have unequal numbers of entries.
        total, entries = jax.lax.psum((leaf.total, leaf.entries), axis)
        minimum = jax.lax.pmin(leaf.minimum, axis)
        maximum = jax.lax.pmax(leaf.maximum, axis)
        return Spread(total, entries, minimum, maximum)

    return jax.tree.map(reduce, tree, is_leaf=_is_spread)


def named(spreads: Mapping[str, Spread]) -> dict[str, jax.Array]:
    """The metrics NAME_mean, NAME_min and NAME_max of each spread; zeros where it has no
    numbers.
    """
    metrics: dict[str, jax.Array] = {}
    for name, numbers in spreads.items():
        # An empty spread has infinities, by which the guard would take the step for one that is not
        # finite.
        is_empty = numbers.entries == 0
        mean = numbers.total / jnp.maximum(numbers.entries, 1.0)
        metrics[f"{name}_mean"] = jnp.where(is_empty, 0.0, mean)
        metrics[f"{name}_min"] = jnp.where(is_empty, 0.0, numbers.minimum)
        metrics[f"{name}_max"] = jnp.where(is_empty, 0.0, numbers.maximum)
    return metrics
