"""Matrix products in the dtype of their inputs, in the form that is quickest on this machine.

In bfloat16 they have reverse-mode gradients alone where `sums_in_float32` holds.
"""

from __future__ import annotations

import functools
from pathlib import Path

import chex
import jax
import jax.numpy as jnp

CPU_INFO = Path("/proc/cpuinfo")
# What Linux calls the instructions that multiply bfloat16.
_BFLOAT16_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})


def linear(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """`x` [..., in] @ `kernel` [in, out], both of one dtype, which the result [..., out] has
    too.
    """
    chex.assert_equal(x.dtype, kernel.dtype)
    if not sums_in_float32(x.dtype):
        return x @ kernel
    return _einsum("...i,io->...o", x, kernel)


def einsum(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """`jnp.einsum(letters, x, y)` of two arrays of one dtype, which the result has too.

    Every letter stands in two of the three arrays, and no axis of size 1 is broadcast: then each
    gradient is a product of the same kind.
    """
    chex.assert_equal(x.dtype, y.dtype)
    if not sums_in_float32(x.dtype):
        return jnp.einsum(letters, x, y)
    return _einsum(letters, x, y)


def einsum_float32(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """As `einsum`, with the sums in float32 as the result.

    Where `sums_in_float32` holds, the gradient of the result is rounded to the inputs' dtype before
    it is multiplied.
    """
    chex.assert_equal(x.dtype, y.dtype)
    if not sums_in_float32(x.dtype):
        return jnp.einsum(letters, x, y, preferred_element_type=jnp.float32)
    return _einsum_float32(letters, x, y)


def sums_in_float32(dtype: jnp.dtype) -> bool:
    """Whether products of `dtype` are written as float32 sums that are rounded afterwards.

    XLA uses a CPU's instructions for products of bfloat16 (`has_bfloat16_products`) only where the
    result is float32: at two to four times the rate of products asked for in bfloat16, whose inputs
    it first converts to float32. Cooper Lake was not measured. A GPU sums in float32 in any case:
    there products stay as they are asked for. Only this function decides it.
    """
    return dtype == jnp.bfloat16 and jax.default_backend() == "cpu" and has_bfloat16_products()


def prefers_output_major() -> bool:
    """Whether products are faster with kernels kept as [out, in], as PyTorch keeps them, than with
    [in, out]. Only this function decides it by platform.

    On a CPU bfloat16 products of 512 to 2,048 rows have 1.0 to 1.6 times the rate (1.2 as a
    rule), float32 products 1.0 to 1.1 times. GPUs were not measured.
    """
    return jax.default_backend() == "cpu"


@functools.cache
def has_bfloat16_products() -> bool:
    """Whether this machine's processor multiplies bfloat16: in matrix units (Intel's AMX) or in
    vectors of 512 bits (AMD from Zen 4 on, Intel's Cooper Lake).
    """
    flags = CPU_INFO.read_text().split() if CPU_INFO.exists() else []
    return not _BFLOAT16_FLAGS.isdisjoint(flags)


# jax's own gradients would be products of float32 with bfloat16, which are as slow as those of
# float32.
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _einsum_float32(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.einsum(letters, x, y, preferred_element_type=jnp.float32)


def _forward(
    letters: str, x: jax.Array, y: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _einsum_float32(letters, x, y), (x, y)


def _backward(
    letters: str, inputs: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, y = inputs
    gradient = gradient.astype(x.dtype)
    of_inputs, of_output = letters.split("->")
    of_x, of_y = of_inputs.split(",")
    x_gradient = _einsum(f"{of_output},{of_y}->{of_x}", gradient, y)
    y_gradient = _einsum(f"{of_x},{of_output}->{of_y}", x, gradient)
    return x_gradient, y_gradient


_einsum_float32.defvjp(_forward, _backward)


def _einsum(letters: str, x: jax.Array, y: jax.Array) -> jax.Array:
    """Float32 sums in the inputs' dtype."""
    return _einsum_float32(letters, x, y).astype(x.dtype)
