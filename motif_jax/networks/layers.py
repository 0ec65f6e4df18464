"""Layers and initialisers of the networks."""

from __future__ import annotations

from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

Array = jax.Array
Activation = Callable[[Array], Array]
Initializer = Callable[..., Array]


@jax.custom_jvp
def elu(x: Array) -> Array:
    """Exponential linear unit (Clevert et al. 2016): x above 0, exp(x) - 1 below.

    Takes half the time of `jax.nn.elu` on CPU: exp(x) - 1 is accurate enough here without expm1, and the backward pass needs
    only the output.
    """
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = elu(*primals)
    return y, tangents[0] * jnp.where(y > 0, 1, y + 1)


ACTIVATIONS: dict[str, Activation] = {"elu": elu, "relu": nn.relu, "tanh": jnp.tanh}


def uniform(limit: float) -> Initializer:
    """An initialiser, uniform in [-limit, limit]."""

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def orthogonal_output_first(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """An orthogonal initialiser with gain 1 for a kernel [..., in, out] (Saxe et al. 2014).

    The orthogonal matrix is [out, everything else], for dense and convolution kernels alike.
    """
    return jax.nn.initializers.orthogonal(column_axis=-1)(key, shape, dtype)


def unit_rows(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """A normal initialiser for a kernel [in, out], with each output's weights scaled to norm 1."""
    drawn = jax.random.normal(key, shape, dtype)
    return drawn / jnp.sqrt(jnp.sum(jnp.square(drawn), axis=0, keepdims=True))


def add_bias(y: Array, bias: Array) -> Array:
    """Adds `bias` float32 [features] to `y` [..., features]; the result has the dtype of `y`.

    Adds in float32, so that the bias gradient, a sum over all rows, is a float32 sum. On some GPUs (Hopper) XLA sums
    bfloat16 in bfloat16, and such a sum stops growing at 256 times its terms.
    """
    return (y.astype(bias.dtype) + bias).astype(y.dtype)


class Dense(nn.Module):
    """A linear layer [..., in] -> [..., features] with orthogonal weights and zero bias.

    Attributes:
      dtype: of the matrix product; parameters are float32.
      limit: if not None, weights and bias start uniform in [-limit, limit].
      start: initialiser of the weights if `limit` is None.
    """

    features: int
    dtype: jnp.dtype = jnp.float32
    limit: float | None = None
    start: Initializer = orthogonal_output_first

    @nn.compact
    def __call__(self, x: Array) -> Array:
        weight_init = self.start if self.limit is None else uniform(self.limit)
        bias_init = nn.initializers.zeros_init() if self.limit is None else uniform(self.limit)
        kernel = self.param("kernel", weight_init, (x.shape[-1], self.features))
        bias = self.param("bias", bias_init, (self.features,))
        return add_bias(x.astype(self.dtype) @ kernel.astype(self.dtype), bias)


def flatten_channels_first(x: Array) -> Array:
    """Flattens [N, height, width, channels] to [N, features] in the order channel, row, column."""
    return jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)


class ConvWeights(nn.Module):
    """Kernel [size, size, inputs, features] (orthogonal) and bias [features] (zero) of a 2-d convolution, float32.

    With a `limit` both start uniform in [-limit, limit].
    """

    inputs: int
    features: int
    size: int
    limit: float | None = None

    @nn.compact
    def __call__(self) -> tuple[Array, Array]:
        shape = (self.size, self.size, self.inputs, self.features)
        weight_init = orthogonal_output_first if self.limit is None else uniform(self.limit)
        bias_init = nn.initializers.zeros_init() if self.limit is None else uniform(self.limit)
        kernel = self.param("kernel", weight_init, shape)
        return kernel, self.param("bias", bias_init, (self.features,))


def convolve(x: Array, weights: tuple[Array, Array], stride: int = 1, padding: int = 0) -> Array:
    """2-d cross-correlation of pictures [N, H, W, in] -> [N, H', W', out], in the dtype of `x`.

    Args:
      weights: kernel [k, k, in, out] and bias [out].
      padding: zeros added on each side.
    """
    chex.assert_rank(x, 4)
    kernel, bias = weights
    pad = (padding, padding)
    y = jax.lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        (stride, stride),
        (pad, pad),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return add_bias(y, bias)
