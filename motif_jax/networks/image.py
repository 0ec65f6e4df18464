"""Encoders of the policy's picture of the game: uint8 tiles to features."""

from __future__ import annotations

import math
from typing import Any

import chex
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from motif_jax.networks.layers import ACTIVATIONS, Conv, Dense, flatten_channels_first

Array = chex.Array

# Of each convolution: output channels, side, stride.
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESIDUAL_STAGES: dict[str, tuple[int, ...]] = {"resnet_impala": (16, 32, 32)}
# Rows that are convolved at a time on CPU; 8 to 48 measured alike.
CHUNK = 24
IMAGE_ENCODERS = (*CONVOLUTIONS, *RESIDUAL_STAGES, "mlp")


def draw_window(tiles: Array, chars: Array, colors: Array) -> Array:
    """Draws windows of characters as pictures.

    Args:
      tiles: uint8 [characters, colours, height, width, 3], the drawn glyphs.
      chars: integer [N, rows, columns], character codes.
      colors: integer [N, rows, columns], colour numbers.

    Returns:
      uint8 [N, rows * height, columns * width, 3].
    """
    chex.assert_rank([tiles, chars, colors], [5, 3, 3])
    chex.assert_equal_shape([chars, colors])
    kinds, (height, width, depth) = tiles.shape[:2], tiles.shape[2:]
    count, rows, columns = chars.shape
    index = chars.astype(jnp.int32) * kinds[1] + colors.astype(jnp.int32)
    drawn = jnp.take(tiles.reshape(-1, height * width * depth), index, axis=0, mode="clip")
    drawn = drawn.reshape(count, rows, columns, height, width, depth)
    return drawn.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows * height, columns * width, depth)


def scaled_picture(tiles: np.ndarray, window: tuple[Array, Array], scale: float, dtype: jnp.dtype) -> Array:
    """Draws windows (see `draw_window`) as [N, height, width, 3] of `dtype`, divided by `scale`."""
    picture = draw_window(jnp.asarray(tiles), *window).astype(dtype)
    return picture / jnp.asarray(scale, dtype)


class ConvolutionStack(nn.Module):
    """Windows of characters -> flattened features of the convolutions, as the body of a scan.

    Attributes:
      tiles: uint8 [characters, colours, height, width, 3].
      kind: one of CONVOLUTIONS or RESIDUAL_STAGES.
      scale: pixels are divided by it.
      nonlinearity: name of the activation.
      form: how convolutions are computed, see `layers.Conv`.
      dtype: of the computation.
    """

    tiles: np.ndarray
    kind: str
    scale: float
    nonlinearity: str
    form: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, carry: None, window: tuple[Array, Array]) -> tuple[None, Array]:
        """Characters and colours [N, rows, columns] -> features [N, F], channels first."""
        x = scaled_picture(self.tiles, window, self.scale, self.dtype)
        if self.kind in RESIDUAL_STAGES:
            x = self._residual(x)
        else:
            for i, (channels, size, stride) in enumerate(CONVOLUTIONS[self.kind], start=1):
                layer = Conv(channels, size, stride, form=self.form, dtype=self.dtype, name=f"image_conv{i}")
                x = ACTIVATIONS[self.nonlinearity](layer(x))
        return carry, flatten_channels_first(x)

    def _residual(self, x: Array) -> Array:
        """Stages of convolution, pooling and two residual blocks, and one activation at the end.

        The skip connection carries the ACTIVATED input of the block: the published network computes its
        first activation in place, and weights trained by either only fit this form.
        """
        act = ACTIVATIONS[self.nonlinearity]
        for i, channels in enumerate(RESIDUAL_STAGES[self.kind], start=1):

            def conv(name: str, channels: int = channels, stage: int = i) -> Conv:
                full = f"image_stage{stage}_{name}"
                return Conv(channels, 3, padding=1, form=self.form, dtype=self.dtype, name=full)

            x = nn.max_pool(conv("conv")(x), (3, 3), (2, 2), ((1, 1), (1, 1)))
            for block in (1, 2):
                skip = act(x)
                x = conv(f"block{block}_conv1")(skip)
                x = skip + conv(f"block{block}_conv2")(act(x))
        return act(x)


class ImageEncoder(nn.Module):
    """Windows of characters -> features [N, features].

    In the 'patches' form the convolutions run over a few rows at a time, and again in the backward pass
    instead of keeping what they gave: their intermediate arrays then stay in the processor's cache, which
    saves more than it costs.

    Attributes:
      tiles: uint8 [characters, colours, height, width, 3].
      kind: one of IMAGE_ENCODERS (Espeholt et al. 2018 for the two named impala).
      features: width of the output.
      scale: pixels are divided by it.
      nonlinearity: name of the activation.
      form: how convolutions are computed, see `layers.Conv`.
      dtype: of the computation.
    """

    tiles: np.ndarray
    kind: str
    features: int
    scale: float
    nonlinearity: str
    form: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, chars: Array, colors: Array) -> Array:
        """Encodes N windows, integers [N, rows, columns] each."""
        chex.assert_rank([chars, colors], 3)
        act = ACTIVATIONS[self.nonlinearity]
        if self.kind == "mlp":
            x = flatten_channels_first(scaled_picture(self.tiles, (chars, colors), self.scale, self.dtype))
            x = act(Dense(self.features, self.dtype, name="image_fc1")(x))
            return act(Dense(self.features, self.dtype, name="image_fc2")(x))
        settings = (self.tiles, self.kind, self.scale, self.nonlinearity, self.form, self.dtype)
        if self.form == "conv":
            _, x = ConvolutionStack(*settings, name="convolutions")(None, (chars, colors))
        else:
            x = self._in_chunks(settings, chars, colors)
        return act(Dense(self.features, self.dtype, name="image_fc")(x))

    def _in_chunks(self, settings: tuple[Any, ...], chars: Array, colors: Array) -> Array:
        count = chars.shape[0]
        chunks = math.ceil(count / CHUNK)
        size = math.ceil(count / chunks)
        padding = ((0, chunks * size - count), (0, 0), (0, 0))
        windows = tuple(jnp.pad(x, padding).reshape(chunks, size, *x.shape[1:]) for x in (chars, colors))
        body = nn.scan(
            nn.remat(ConvolutionStack, prevent_cse=False),
            variable_broadcast="params",
            split_rngs={"params": False},
        )
        _, x = body(*settings, name="convolutions")(None, windows)
        return x.reshape(chunks * size, -1)[:count]
