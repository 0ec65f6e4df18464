"""Encoders of windows of characters and colours."""

from __future__ import annotations

from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.nets.layers import (
    ACTIVATIONS,
    Dense,
    KernelAndBias,
    convolve,
    convolve_blocks,
    flatten_channels_first,
)
from motif_jax.nets.tiles import TileSet, convolve_tiles, tile_table

Array = jax.Array
LayerWeights = dict[str, tuple[Array, Array]]

# Encoder -> (output channels, side, stride) of each convolution.
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
}
# Encoder -> output channels of each stage of residual blocks.
RESIDUAL_STAGES: dict[str, tuple[int, ...]] = {"resnet_impala": (16, 32, 32)}
IMAGE_ENCODERS = (*CONVOLUTIONS, *RESIDUAL_STAGES, "mlp")
CHANNELS = 3  # of a picture
# Least number of rows for which a table of the first convolution saves time.
TABLE_ROWS = 256


class ImageEncoder(nn.Module):
    """Windows of characters -> features [N, features].

    Attributes:
      kind: one of IMAGE_ENCODERS (the two named impala: Espeholt et al. 2018).
      scale: divides the pixels.
      look_up: whether to use a table (`nets.tiles`) for the first convolution if possible: the
        variable `tables` of `AgentNetwork.prepare`, which has no gradient, or a new table for many
        rows.
      blocks: whether the first convolution reads squares of pixels (`layers.convolve_blocks`) where
        it uses no table.
      dtype: of the computation; the table is float32, so that its gradient is summed in float32.
    """

    tiles: TileSet
    kind: str
    features: int
    scale: float
    nonlinearity: str
    look_up: bool
    blocks: bool = False
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, chars: Array, colors: Array) -> Array:
        """Encodes N windows, integers [N, rows, columns] each."""
        chex.assert_rank([chars, colors], 3)
        chex.assert_equal_shape([chars, colors])
        act = ACTIVATIONS[self.nonlinearity]
        kinds = self.tiles.look_up(chars, colors)
        if self.kind == "mlp":
            x = flatten_channels_first(self._picture(kinds))
            x = act(Dense(self.features, self.dtype, name="image_fc1")(x))
            return act(Dense(self.features, self.dtype, name="image_fc2")(x))
        weights = {
            name: KernelAndBias((size, size, inputs, channels), name=name)()
            for name, inputs, channels, size in convolution_shapes(self.kind)
        }
        if self.kind in RESIDUAL_STAGES:
            x = residual_net(weights, self._picture(kinds), len(RESIDUAL_STAGES[self.kind]), act)
        else:
            x = self._convnet(weights, kinds)
        return act(Dense(self.features, self.dtype, name="image_fc")(x))

    def _picture(self, kinds: Array) -> Array:
        return self.tiles.draw(kinds).astype(self.dtype) / jnp.asarray(self.scale, self.dtype)

    def _table(self, weights: LayerWeights, rows: int) -> Array | None:
        """The `tile_table` of the first convolution for so many rows; None: draw the pictures."""
        if not self.look_up:
            return None
        # While acting: it was made with the publication of the parameters.
        if self.has_variable("tables", "image_conv1"):
            return self.get_variable("tables", "image_conv1")
        # Only `AgentNetwork.prepare` makes the collection mutable outside of an initialisation.
        stores = self.is_mutable_collection("tables") and not self.is_initializing()
        if rows < TABLE_ROWS and not stores:
            return None
        # The table's pixels are whole numbers: the kernel is divided in their place.
        table = tile_table(self.tiles, weights["image_conv1"][0] / self.scale)
        if stores:
            self.put_variable("tables", "image_conv1", table)
        return table

    def _convnet(self, weights: LayerWeights, kinds: Array) -> Array:
        act = ACTIVATIONS[self.nonlinearity]
        table = self._table(weights, len(kinds))
        x = self._picture(kinds) if table is None else kinds
        for number, (_, _, stride) in enumerate(CONVOLUTIONS[self.kind], start=1):
            layer = weights[f"image_conv{number}"]
            if number == 1 and table is not None:
                _, bias = layer
                # Rounded after the sums, since the table is float32.
                x = (convolve_tiles(table, kinds) + bias).astype(self.dtype)
            elif number == 1 and self.blocks:
                x = convolve_blocks(x, layer, stride)
            else:
                x = convolve(x, layer, stride)
            x = act(x)
        return flatten_channels_first(x)


def convolution_shapes(kind: str) -> list[tuple[str, int, int, int]]:
    """(name, input channels, output channels, side) of each convolution of an encoder."""
    shapes = []
    inputs = CHANNELS
    for number, (channels, size, _) in enumerate(CONVOLUTIONS.get(kind, ()), start=1):
        shapes.append((f"image_conv{number}", inputs, channels, size))
        inputs = channels
    for stage, channels in enumerate(RESIDUAL_STAGES.get(kind, ()), start=1):
        shapes.append((f"image_stage{stage}_conv", inputs, channels, 3))
        for block in (1, 2):
            shapes.append((f"image_stage{stage}_block{block}_conv1", channels, channels, 3))
            shapes.append((f"image_stage{stage}_block{block}_conv2", channels, channels, 3))
        inputs = channels
    return shapes


def residual_net(
    weights: LayerWeights, x: Array, stages: int, act: Callable[[Array], Array]
) -> Array:
    """Stages of convolution, pooling and two residual blocks on pictures [N, H, W, 3] -> [N, F],
    flattened channels first.

    The skip connection carries the activated input of the block, since the published network
    computes its first activation in place, and published weights fit only this form.
    """
    for stage in range(1, stages + 1):
        x = convolve(x, weights[f"image_stage{stage}_conv"], padding=1)
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for block in (1, 2):
            first = weights[f"image_stage{stage}_block{block}_conv1"]
            second = weights[f"image_stage{stage}_block{block}_conv2"]
            skip = act(x)
            x = act(convolve(skip, first, padding=1))
            x = skip + convolve(x, second, padding=1)
    return flatten_channels_first(act(x))
