"""Encoders of windows of characters and colours.

The first convolution may be computed over a picture of tiles without drawing the picture. A tile
has 6x6 pixels, the kernel 8x8 with stride 4. A tile affects three outputs in each direction; which
ones depends only on the parity of its row and column. So a tile adds a row of a table to its nine
outputs; the table has a row per kind of tile and parity, and a matrix product makes it from the
kernel once for all cells. A lookup and three sums replace 300 kB of patches per picture; the
gradient does not need the picture either.
"""

from __future__ import annotations

from collections.abc import Callable

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.nets.layers import (
    ACTIVATIONS,
    Dense,
    KernelAndBias,
    convolve,
    convolve_blocks,
    flatten_channels_first,
)

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
# Sides in pixels of a tile and of the kernel, and the kernel's stride.
TILE = 6
KERNEL_SIDE = 8
KERNEL_STRIDE = 4
# Outputs that a tile affects in one direction: -1, 0, 1 for an even tile, 0, 1, 2 for an odd one.
TOUCHED = 3
# Least number of rows for which a table of the first convolution saves time.
TABLE_ROWS = 256


class TileSet:
    """The distinct pictures among the tiles of all characters and colours.

    Attributes:
      pictures: uint8 [kinds, 6, 6, 3].
      kind: int32 [characters, colours], index of the picture of a character in a colour.
    """

    def __init__(self, tiles: np.ndarray) -> None:
        """`tiles` is uint8 [characters, colours, 6, 6, 3]."""
        flat = tiles.reshape(-1, *tiles.shape[2:])
        self.pictures, kind = np.unique(flat, axis=0, return_inverse=True)
        self.kind: np.ndarray = kind.reshape(tiles.shape[:2]).astype(np.int32)

    def look_up(self, chars: Array, colors: Array) -> Array:
        """Kinds int32 [...] from characters and colours, integers [...]."""
        _, colours = self.kind.shape
        # Only the low bits of a colour count, as in a terminal.
        index = chars.astype(jnp.int32) * colours + colors.astype(jnp.int32) % colours
        return jnp.take(jnp.asarray(self.kind).reshape(-1), index, mode="clip")

    def draw(self, kinds: Array) -> Array:
        """Pictures uint8 [N, rows * 6, columns * 6, 3] from kinds [N, rows, columns]."""
        chex.assert_rank(kinds, 3)
        count, rows, columns = kinds.shape
        _, height, width, depth = self.pictures.shape
        flat = jnp.asarray(self.pictures).reshape(-1, height * width * depth)
        tiles = jnp.take(flat, kinds, axis=0, mode="clip")
        tiles = tiles.reshape(count, rows, columns, height, width, depth)
        return tiles.transpose(0, 1, 3, 2, 4, 5).reshape(
            count, rows * height, columns * width, depth
        )


class ImageEncoder(nn.Module):
    """Windows of characters -> features [N, features].

    Attributes:
      kind: one of IMAGE_ENCODERS (the two named impala: Espeholt et al. 2018).
      scale: divides the pixels.
      look_up: whether to use a table (`tile_table`) for the first convolution if possible: the
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


def tile_table(tiles: TileSet, kernel: Array) -> Array:
    """The summands that each kind of tile adds to its outputs, for a kernel [8, 8, 3, O].

    Axes [2, 2, kinds * 3, 3 * O]: parity of the tile's row, of its column, kind and output row,
    output column and channel.
    """
    chex.assert_shape(kernel, (KERNEL_SIDE, KERNEL_SIDE, 3, None))
    features = kernel.shape[-1]
    pixels = jnp.asarray(tiles.pictures).reshape(len(tiles.pictures), -1).astype(kernel.dtype)
    # The margin makes every part of the kernel over a tile a slice.
    margin = 2 * TILE
    wide = jnp.pad(kernel, ((margin, margin), (margin, margin), (0, 0), (0, 0)))

    def kernel_starts(parity: int) -> list[int]:
        """Offset in `wide` of a tile of this parity, for each output in one direction."""
        return [margin + TILE * parity - KERNEL_STRIDE * (i - 1 + parity) for i in range(TOUCHED)]

    def summands(row_parity: int, column_parity: int) -> Array:
        """[kinds * 3, 3 * O], see above."""
        kernels = []
        for y in kernel_starts(row_parity):
            for x in kernel_starts(column_parity):
                kernels.append(wide[y : y + TILE, x : x + TILE])
        flat = jnp.stack(kernels, axis=-2).reshape(pixels.shape[1], -1)
        return (pixels @ flat).reshape(-1, TOUCHED * features)

    even_rows = jnp.stack([summands(0, 0), summands(0, 1)])
    odd_rows = jnp.stack([summands(1, 0), summands(1, 1)])
    return jnp.stack([even_rows, odd_rows])


def convolve_tiles(table: Array, kinds: Array) -> Array:
    """Cross-correlation with stride 4 of pictures of tiles,
    [N, rows * 6 // 4 - 1, columns * 6 // 4 - 1, O].

    The table is a `tile_table`, kinds are int32 [N, rows, columns]; rows and columns are even.
    """
    chex.assert_rank([table, kinds], [4, 3])
    count, rows, columns = kinds.shape
    height, width = rows // 2 * TOUCHED, columns // 2 * TOUCHED
    total = jnp.zeros((), table.dtype)
    for row in (0, 1):
        for column in (0, 1):
            cells = kinds[:, row::2, column::2]
            # [N, rows / 2, 3, columns / 2]: a row of the table for each of a tile's output rows.
            index = cells[:, :, None, :] * TOUCHED + jnp.arange(TOUCHED)[:, None]
            summands = jnp.take(table[row, column], index, axis=0, mode="clip")
            summands = summands.reshape(count, height, width, -1)
            # Outputs of an even tile begin one before those of the next odd tile.
            total = total + summands[:, 1 - row : height - row, 1 - column : width - column]
    return total
