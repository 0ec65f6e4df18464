"""The convolution with gradients of its own, against that of JAX."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets.layers import convolution
from tests.sets import extra

Array = jax.Array
Layer = Callable[[Array, Array, int, int], Array]


def plain_convolution(pictures: Array, kernel: Array, stride: int, padding: int) -> Array:
    return jax.lax.conv_general_dilated(
        pictures,
        kernel,
        window_strides=(stride, stride),
        padding=[(padding, padding)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def loss_of(layer: Layer, stride: int, padding: int) -> Callable[[Array, Array], Array]:
    return lambda pictures, kernel: jnp.sum(jnp.sin(layer(pictures, kernel, stride, padding)))


def drawn(height: int, width: int, kernel_side: int) -> tuple[Array, Array]:
    draws = np.random.default_rng(0)
    pictures = draws.normal(size=(2, height, width, 3))
    kernel = draws.normal(size=(kernel_side, kernel_side, 3, 4))
    return jnp.asarray(pictures, jnp.float32), jnp.asarray(kernel, jnp.float32)


@pytest.mark.parametrize(
    ("height", "width", "kernel_side", "stride", "padding"),
    [
        (8, 8, 3, 2, 1),
        (7, 10, 3, 2, 1),
        extra(6, 6, 3, 1, 1),
        extra(10, 11, 4, 2, 0),
        extra(8, 8, 2, 1, 1),
        # The last two rows and columns are in no window.
        extra(11, 11, 3, 3, 0),
    ],
)
def test_gradients_are_those_of_jax(
    height: int, width: int, kernel_side: int, stride: int, padding: int
) -> None:
    pictures, kernel = drawn(height, width, kernel_side)

    gradients = jax.jit(jax.grad(loss_of(convolution, stride, padding), (0, 1)))(pictures, kernel)

    plain = jax.jit(jax.grad(loss_of(plain_convolution, stride, padding), (0, 1)))(pictures, kernel)
    if jax.default_backend() == "cpu":
        np.testing.assert_array_equal(gradients[0], plain[0])
        np.testing.assert_array_equal(gradients[1], plain[1])
    for gradient, expected in zip(gradients, plain, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_all_convolutions_of_a_loop_have_the_fast_axes() -> None:
    pictures, kernel = drawn(8, 8, 3)
    gradient = jax.grad(loss_of(convolution, 2, 1), (0, 1))

    def descend(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        slopes = gradient(*carry)
        return jax.tree.map(lambda value, slope: value - 0.1 * slope, carry, slopes), None

    def descend_twice(pictures: Array, kernel: Array) -> tuple[Array, Array]:
        return jax.lax.scan(descend, (pictures, kernel), None, length=2)[0]

    program = jax.jit(descend_twice).lower(pictures, kernel).as_text()

    orders = re.findall(r"dim_numbers = (\[.*?\]x\[.*?\]->\[.*?\])", program)
    assert len(orders) == 3
    assert set(orders) == {"[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"}
