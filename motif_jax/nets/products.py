"""Matrix products in the dtype of their inputs, whichever way is the quickest on this machine."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp

_CPU_INFO = Path("/proc/cpuinfo")


def linear(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`x` [..., in] @ `kernel` [in, out], both of one dtype, which the result [..., out] has too."""
    if not sums_in_float32(x.dtype):
        return x @ kernel
    return _einsum_in_float32("...i,io->...o", x, kernel)


def einsum(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """`jnp.einsum(letters, x, y)` of two arrays of one dtype, which the result has too.

    Every letter stands in two of the three arrays, so that each gradient is a product of the same kind.
    """
    if not sums_in_float32(x.dtype):
        return jnp.einsum(letters, x, y)
    return _einsum_in_float32(letters, x, y)


def sums_in_float32(dtype: jnp.dtype) -> bool:
    """Whether products of `dtype` are written as float32 sums that are rounded afterwards. Only this function decides it.

    A CPU with units for bfloat16 matrices (Intel's AMX) has XLA's quick products of bfloat16 only as float32: four times the rate of
    products that XLA is asked for in bfloat16, which it computes in float32 after converting both sides. Other processors compute either
    way, and a GPU sums in float32 in any case.
    """
    return dtype == jnp.bfloat16 and jax.default_backend() == "cpu" and _has_bfloat16_units()


@functools.cache
def _has_bfloat16_units() -> bool:
    return _CPU_INFO.exists() and " amx_bf16 " in f"{_CPU_INFO.read_text()} ".replace("\n", " ")


# The gradients have a rule of their own, since jax's would be products of float32 with bfloat16, which are as slow as those of float32.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _einsum_in_float32(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum(letters, x, y, preferred_element_type=jnp.float32).astype(x.dtype)


def _forward(letters: str, x: jax.Array, y: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _einsum_in_float32(letters, x, y), (x, y)


def _backward(
    letters: str, inputs: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, y = inputs
    of_inputs, of_output = letters.split("->")
    of_x, of_y = of_inputs.split(",")
    x_gradient = _einsum_in_float32(f"{of_output},{of_y}->{of_x}", gradient, y)
    y_gradient = _einsum_in_float32(f"{of_x},{of_output}->{of_y}", x, gradient)
    return x_gradient, y_gradient


_einsum_in_float32.defvjp(_forward, _backward)
