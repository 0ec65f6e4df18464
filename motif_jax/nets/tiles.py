"""Computes the first convolution over a picture of tiles without drawing the picture.

A tile has 6x6 pixels, the kernel 8x8 with stride 4. A tile affects three outputs in each direction;
which ones depends only on the parity of its row and column. So a tile adds a row of a table to its
nine outputs; the table has a row per kind of tile and parity, and a matrix product makes it from
the kernel once for all cells. A lookup and three sums replace 300 kB of patches per picture; the
gradient does not need the picture either.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
# Sides in pixels of a tile and of the kernel, and the kernel's stride.
TILE = 6
SIZE = 8
STRIDE = 4
# Outputs that a tile affects in one direction: -1, 0, 1 for an even tile, 0, 1, 2 for an odd one.
TOUCHED = 3


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


def tile_table(tiles: TileSet, kernel: Array) -> Array:
    """The summands that each kind of tile adds to its outputs, for a kernel [8, 8, 3, O].

    Axes [2, 2, kinds * 3, 3 * O]: parity of the tile's row, of its column, kind and output row,
    output column and channel.
    """
    chex.assert_shape(kernel, (SIZE, SIZE, 3, None))
    features = kernel.shape[-1]
    pixels = jnp.asarray(tiles.pictures).reshape(len(tiles.pictures), -1).astype(kernel.dtype)
    # The margin makes every part of the kernel over a tile a slice.
    margin = 2 * TILE
    wide = jnp.pad(kernel, ((margin, margin), (margin, margin), (0, 0), (0, 0)))

    def kernel_starts(parity: int) -> list[int]:
        """Offset in `wide` of a tile of this parity, for each output in one direction."""
        return [margin + TILE * parity - STRIDE * (i - 1 + parity) for i in range(TOUCHED)]

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
