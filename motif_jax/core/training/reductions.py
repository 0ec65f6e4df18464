"""Sums and means over all rows of a batch, wherever its parts lie.

With an `axis_name` the reductions sum numerators and denominators over the devices of that mapped axis, too.
So devices with unequal numbers of valid rows agree with one device that has them all. A loss built from them is
the GLOBAL loss on every device; its gradient is the pmean over the axis of what `jax.grad` returns.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array


def total(x: Array, axis_name: str | None = None) -> Array:
    """Sum of all entries of `x`, over the devices of `axis_name` too."""
    return psum(jnp.sum(x), axis_name)


def psum(x: Array, axis_name: str | None = None) -> Array:
    """Sum over the devices of `axis_name`; without one, `x`."""
    return x if axis_name is None else jax.lax.psum(x, axis_name)


def mean(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Mean of `x` where `valid`, both [...]; 0 when there is none. Other entries may hold anything, NaN included."""
    chex.assert_equal_shape([x, valid])
    count = total(valid.astype(jnp.float32), axis_name)
    return total(jnp.where(valid, x, 0.0), axis_name) / jnp.maximum(count, 1.0)


def mean_and_std(x: Array, valid: Array, axis_name: str | None = None) -> tuple[Array, Array]:
    """Mean and unbiased standard deviation of `x` over the rows where `valid`; float32 scalars."""
    center = mean(x, valid, axis_name)
    count = total(valid.astype(jnp.float32), axis_name)
    squares = total(jnp.where(valid, jnp.square(x - center), 0.0), axis_name)
    return center, jnp.sqrt(squares / jnp.maximum(count - 1.0, 1.0))


def minimum(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Smallest of the valid entries, over the devices of `axis_name` too; +inf when there is none."""
    smallest = jnp.min(jnp.where(valid, x, jnp.inf))
    return smallest if axis_name is None else jax.lax.pmin(smallest, axis_name)


def maximum(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Largest of the valid entries, over the devices of `axis_name` too; -inf when there is none."""
    return -minimum(-x, valid, axis_name)
