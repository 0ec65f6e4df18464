"""Sums and means over all rows of a batch, wherever its parts lie.

With an `axis_name` the reductions sum numerators and denominators over the devices of that mapped
axis, too. So devices with unequal numbers of valid rows agree with one device that has them all. A
loss built from them is the GLOBAL loss on every device; its gradient is the pmean over the axis of
what `jax.grad` returns.

Arguments `x` are arrays of any shape, float32 unless a function says otherwise; `valid` is bool, of
the same shape, False for rows that do not count. `axis_name` is an axis of `jax.pmap` or
`jax.vmap`; None where one device has all rows.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jax import Array


def total(x: Array, axis_name: str | None = None) -> Array:
    """Sum of all entries of `x` [...], over the devices of `axis_name` too; a scalar, int32 for
    bool.
    """
    return psum(jnp.sum(x), axis_name)


def psum(x: Array, axis_name: str | None = None) -> Array:
    """Entries of `x` [...] added up over the devices of `axis_name`, of its shape and type; without
    one, `x`.
    """
    return x if axis_name is None else jax.lax.psum(x, axis_name)


def mean(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Mean of `x` where `valid`, both [...]; a float32 scalar, 0 when there is none. Other entries
    may hold anything, NaN included.
    """
    chex.assert_equal_shape([x, valid])
    count = total(valid.astype(jnp.float32), axis_name)
    # `where` in place of a product, since NaN times 0 is NaN.
    return total(jnp.where(valid, x, 0.0), axis_name) / jnp.maximum(count, 1.0)


def mean_and_std(x: Array, valid: Array, axis_name: str | None = None) -> tuple[Array, Array]:
    """Mean and unbiased standard deviation of `x` where `valid`, both [...]; float32 scalars, 0
    when there is none.

    The squares are those of differences from the mean of all devices; of one row the deviation is
    0.
    """
    center = mean(x, valid, axis_name)
    count = total(valid.astype(jnp.float32), axis_name)
    # A second pass over `x`: the difference of two large sums would lose its digits in float32.
    squares = total(jnp.where(valid, jnp.square(x - center), 0.0), axis_name)
    return center, jnp.sqrt(squares / jnp.maximum(count - 1.0, 1.0))


def minimum(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Smallest entry of `x` where `valid`, both [...], over the devices of `axis_name` too; a
    scalar, +inf when there is none.
    """
    chex.assert_equal_shape([x, valid])
    smallest = jnp.min(jnp.where(valid, x, jnp.inf))
    return smallest if axis_name is None else jax.lax.pmin(smallest, axis_name)


def maximum(x: Array, valid: Array, axis_name: str | None = None) -> Array:
    """Largest entry of `x` where `valid`, both [...], over the devices of `axis_name` too; a
    scalar, -inf when there is none.
    """
    return -minimum(-x, valid, axis_name)
