"""Encoders of the policy's picture of the game: uint8 tiles to features."""

from __future__ import annotations

import chex
import flax.linen as nn
import jax.numpy as jnp

from motif_jax.networks.layers import ACTIVATIONS, Conv, Dense, flatten_channels_first

Array = chex.Array

# Of each convolution: output channels, side, stride.
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
RESIDUAL_STAGES: dict[str, tuple[int, ...]] = {"resnet_impala": (16, 32, 32)}
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


class ImageEncoder(nn.Module):
    """Picture [N, H, W, 3] uint8 -> features [N, features].

    Attributes:
      kind: one of IMAGE_ENCODERS (Espeholt et al. 2018 for the two named impala).
      features: width of the output.
      scale: pixels are divided by it.
      nonlinearity: name of the activation.
      form: how convolutions are computed, see `layers.Conv`.
      dtype: of the computation.
    """

    kind: str
    features: int
    scale: float
    nonlinearity: str
    form: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, image: Array) -> Array:
        """Encodes N pictures."""
        chex.assert_rank(image, 4)
        act = ACTIVATIONS[self.nonlinearity]
        x = image.astype(self.dtype) / jnp.asarray(self.scale, self.dtype)
        if self.kind == "mlp":
            x = flatten_channels_first(x)
            x = act(Dense(self.features, self.dtype, name="image_fc1")(x))
            return act(Dense(self.features, self.dtype, name="image_fc2")(x))
        if self.kind in RESIDUAL_STAGES:
            x = act(self._residual(x))
        else:
            for i, (channels, size, stride) in enumerate(CONVOLUTIONS[self.kind], start=1):
                layer = Conv(channels, size, stride, form=self.form, dtype=self.dtype, name=f"image_conv{i}")
                x = act(layer(x))
        return act(Dense(self.features, self.dtype, name="image_fc")(flatten_channels_first(x)))

    def _residual(self, x: Array) -> Array:
        """Stages of convolution, pooling and two residual blocks; the activation after them is the caller's.

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
        return x
