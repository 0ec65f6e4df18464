"""Layers and initialisers of the networks, and the scale of NetHack's status."""

from __future__ import annotations

import functools
from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.nethack.status import BLSTATS_CLIP, BLSTATS_SCALE, NUM_STATUS
from motif_jax.nets import products

Array = jax.Array
Initializer = Callable[..., Array]
# Outside of a program's entry, XLA's CPU compiler has a fast convolution for this order of axes
# alone. JAX's own gradients have other orders: in the loop over minibatches they took 36 times as
# long (https://github.com/jax-ml/jax/issues/12868).
_AXES = ("NHWC", "HWIO", "NHWC")


@jax.custom_jvp
def elu(x: Array) -> Array:
    """Exponential linear unit (Clevert et al. 2016) in half the time of `jax.nn.elu` on CPU, since
    its gradient needs only the output.
    """
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    # Where x is below 0, its exponential is y + 1.
    return y, tangents[0] * jnp.where(y > 0, 1, y + 1)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"elu": elu, "relu": nn.relu, "tanh": jnp.tanh}


def uniform(limit: float) -> Initializer:
    """An initialiser that draws uniformly from [-limit, limit]."""

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


# Saxe et al. 2014, gain 1: of a kernel [..., in, out] the matrix [out, everything else] is
# orthogonal.
orthogonal_output_first: Initializer = nn.initializers.orthogonal(column_axis=-1)


def unit_rows(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """A normal initialiser for a kernel [in, out], with each output's weights scaled to norm 1."""
    kernel = jax.random.normal(key, shape, dtype)
    return kernel / jnp.sqrt(jnp.sum(jnp.square(kernel), axis=0, keepdims=True))


def add_bias(y: Array, bias: Array) -> Array:
    """Adds `bias` float32 [features] to `y` [..., features]; the result has the dtype of `y`.

    Adds in float32, so that the bias gradient, a sum over all rows, is a float32 sum. On some GPUs
    (Hopper) XLA sums bfloat16 in bfloat16, and such a sum stops growing at 256 times its terms.
    """
    return (y.astype(bias.dtype) + bias).astype(y.dtype)


def kernel_and_bias(
    module: nn.Module,
    shape: tuple[int, ...],
    limit: float | None,
    start: Initializer = orthogonal_output_first,
) -> tuple[Array, Array]:
    """The parameters `kernel` [*shape] and `bias` [shape[-1]] of a module, float32.

    They start by `start` and as zeros, or with a `limit` both uniform in [-limit, limit].
    """
    if limit is None:
        kernel_start = start
        bias_start = nn.initializers.zeros_init()
    else:
        kernel_start = uniform(limit)
        bias_start = uniform(limit)
    kernel = module.param("kernel", kernel_start, shape)
    bias = module.param("bias", bias_start, shape[-1:])
    return kernel, bias


class KernelAndBias(nn.Module):
    """A layer's parameters without its computation, see `kernel_and_bias`."""

    shape: tuple[int, ...]
    limit: float | None = None

    @nn.compact
    def __call__(self) -> tuple[Array, Array]:
        return kernel_and_bias(self, self.shape, self.limit)


class Dense(nn.Module):
    """A linear layer [..., in] -> [..., features]; for `limit` and `start` see `kernel_and_bias`.

    Attributes:
      dtype: of the matrix product; parameters are float32.
    """

    features: int
    dtype: jnp.dtype = jnp.float32
    limit: float | None = None
    start: Initializer = orthogonal_output_first

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel, bias = kernel_and_bias(self, (x.shape[-1], self.features), self.limit, self.start)
        return add_bias(products.linear(x.astype(self.dtype), kernel.astype(self.dtype)), bias)


def scale_status(blstats: jax.Array) -> jax.Array:
    """Scales and clips blstats [N, 27], or [N, 26] of engines before 1.0, to float32 [N, 27] in
    [-5, 5].
    """
    chex.assert_rank(blstats, 2)
    missing = NUM_STATUS - blstats.shape[1]
    status = jnp.pad(blstats.astype(jnp.float32), ((0, 0), (0, missing)))
    return jnp.clip(status * BLSTATS_SCALE, -BLSTATS_CLIP, BLSTATS_CLIP)


def flatten_channels_first(x: Array) -> Array:
    """Flattens [N, height, width, channels] to [N, features] in the order channel, row, column."""
    return jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)


def convolve_blocks(x: Array, weights: tuple[Array, Array], stride: int) -> Array:
    """`convolve` with squares of `stride` x `stride` pixels as the channels of one, a sum over the
    same products in another order.

    On a GPU three input channels fill few lanes of a matrix product; 8x8 with stride 4 over 72x72x3
    becomes 2x2 over 18x18x48.

    Args:
      x: pictures [N, H, W, in]; H and W are multiples of the stride.
      weights: kernel [k, k, in, out], k a multiple of the stride, and bias [out]; float32, computed
          in the dtype of `x`.

    Returns:
      [N, (H - k) / stride + 1, (W - k) / stride + 1, out], in the dtype of `x`.
    """
    kernel, bias = weights
    chex.assert_rank([x, kernel, bias], [4, 4, 1])
    chex.assert_is_divisible(kernel.shape[0], stride)
    chex.assert_is_divisible(x.shape[1], stride)
    chex.assert_is_divisible(x.shape[2], stride)
    side = kernel.shape[0] // stride
    # [k / s, s, k / s, s, in, out] to [k / s, k / s, s s in, out], ordered as the blocks below.
    block_kernel = kernel.astype(x.dtype).reshape(side, stride, side, stride, *kernel.shape[2:])
    block_kernel = block_kernel.transpose(0, 2, 1, 3, 4, 5).reshape(
        side, side, -1, kernel.shape[-1]
    )

    count, height, width, channels = x.shape
    blocks = x.reshape(count, height // stride, stride, width // stride, stride, channels)
    blocks = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(
        count, height // stride, width // stride, -1
    )
    return convolve(blocks, (block_kernel, bias))


def convolve(x: Array, weights: tuple[Array, Array], stride: int = 1, padding: int = 0) -> Array:
    """Cross-correlation of pictures [N, H, W, in] -> [N, H', W', out], or of lines [N, W, in], in
    the dtype of `x`.

    Args:
      weights: kernel [k, k, in, out], or [k, in, out], and bias [out].
      padding: zeros added on each side.
    """
    chex.assert_rank(x, {3, 4})
    kernel, bias = weights
    spatial_axes = x.ndim - 2
    # Its gradients are quick inside of loops, too.
    if spatial_axes == 2 and jax.default_backend() == "cpu":
        return add_bias(convolution(x, kernel.astype(x.dtype), stride, padding), bias)
    y = jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        window_strides=(stride,) * spatial_axes,
        padding=[(padding, padding)] * spatial_axes,
        dimension_numbers=("NWC", "WIO", "NWC") if spatial_axes == 1 else ("NHWC", "HWIO", "NHWC"),
    )
    return add_bias(y, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolution(pictures: Array, kernel: Array, stride: int, padding: int) -> Array:
    """Cross-correlation of pictures [N, H, W, in] -> [N, H', W', out] with a kernel
    [k, k, in, out], whose gradients a CPU computes as fast in a loop as outside of one.

    Value and gradients are those of `jax.lax.conv_general_dilated`, outside of loops to the bit.

    Args:
      padding: zeros added on each side.
    """
    sides = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(
        pictures, kernel, (stride, stride), sides, dimension_numbers=_AXES
    )


def _convolution_forward(
    pictures: Array, kernel: Array, stride: int, padding: int
) -> tuple[Array, tuple[Array, Array]]:
    return convolution(pictures, kernel, stride, padding), (pictures, kernel)


def _convolution_backward(
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


convolution.defvjp(_convolution_forward, _convolution_backward)
