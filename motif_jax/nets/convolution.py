"""A convolution whose gradients a CPU computes as fast in a loop as outside of one."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

Array = jax.Array
# Outside of a program's entry, XLA's CPU compiler has a fast convolution for this order of axes
# alone. JAX's own gradients have other orders: in the loop over minibatches they took 36 times as
# long (https://github.com/jax-ml/jax/issues/12868).
_AXES = ("NHWC", "HWIO", "NHWC")


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolution(pictures: Array, kernel: Array, stride: int, padding: int) -> Array:
    """Cross-correlation of pictures [N, H, W, in] -> [N, H', W', out] with a kernel
    [k, k, in, out].

    Value and gradients are those of `jax.lax.conv_general_dilated`, outside of loops to the bit.

    Args:
      padding: zeros added on each side.
    """
    sides = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(
        pictures, kernel, (stride, stride), sides, dimension_numbers=_AXES
    )


def _forward(
    pictures: Array, kernel: Array, stride: int, padding: int
) -> tuple[Array, tuple[Array, Array]]:
    return convolution(pictures, kernel, stride, padding), (pictures, kernel)


def _backward(
    stride: int, padding: int, residuals: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    pictures, kernel = residuals
    return (
        _gradient_of_pictures(pictures.shape, kernel, stride, padding, cotangent),
        _gradient_of_kernel(pictures, kernel.shape, stride, padding, cotangent),
    )


def _gradient_of_pictures(
    shape: tuple[int, ...], kernel: Array, stride: int, padding: int, cotangent: Array
) -> Array:
    """The cotangent, spread out by the stride, convolved with the flipped kernel."""
    flipped = jnp.flip(kernel, (0, 1)).transpose(0, 1, 3, 2)
    sides = []
    for axis in (1, 2):
        spread = (cotangent.shape[axis] - 1) * stride + 1
        # So that the result has the pictures' side.
        before = kernel.shape[axis - 1] - 1 - padding
        after = shape[axis] + kernel.shape[axis - 1] - 1 - spread - before
        sides.append((before, after))
    return jax.lax.conv_general_dilated(
        cotangent, flipped, (1, 1), sides, lhs_dilation=(stride, stride), dimension_numbers=_AXES
    )


def _gradient_of_kernel(
    pictures: Array, shape: tuple[int, ...], stride: int, padding: int, cotangent: Array
) -> Array:
    """The pictures, with rows as their channels, convolved with the cotangent, spread out by the
    stride.
    """
    sides = []
    for axis in (1, 2):
        spread = (cotangent.shape[axis] - 1) * stride + 1
        # So that the result has the kernel's side.
        after = shape[axis - 1] - 1 + spread - pictures.shape[axis] - padding
        sides.append((padding, after))
    gradient = jax.lax.conv_general_dilated(
        pictures.transpose(3, 1, 2, 0),
        cotangent.transpose(1, 2, 0, 3),
        (1, 1),
        sides,
        rhs_dilation=(stride, stride),
        dimension_numbers=_AXES,
    )
    return gradient.transpose(1, 2, 0, 3)


convolution.defvjp(_forward, _backward)
