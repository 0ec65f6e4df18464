"""Computes the first convolution over a picture of tiles without drawing the picture.

A tile has 6x6 pixels, the kernel 8x8 with stride 4. A tile affects three outputs in each direction; which ones depends only
on the parity of its row and column. So a tile adds a row of a table to its nine outputs; the table has a row per kind of
tile and parity, and a matrix product makes it from the kernel once for all cells. A lookup and three sums replace 300 kB of
patches per picture; the gradient does not need the picture either.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
TILE, SIZE, STRIDE = 6, 8, 4
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
        _, of_char = self.kind.shape
        # Only the low bits of a colour count, as in a terminal.
        index = chars.astype(jnp.int32) * of_char + colors.astype(jnp.int32) % of_char
        return jnp.take(jnp.asarray(self.kind).reshape(-1), index, mode="clip")

    def draw(self, kinds: Array) -> Array:
        """Pictures uint8 [N, rows * 6, columns * 6, 3] from kinds [N, rows, columns]."""
        chex.assert_rank(kinds, 3)
        count, rows, columns = kinds.shape
        _, height, width, depth = self.pictures.shape
        flat = jnp.asarray(self.pictures).reshape(-1, height * width * depth)
        drawn = jnp.take(flat, kinds, axis=0, mode="clip")
        drawn = drawn.reshape(count, rows, columns, height, width, depth)
        return drawn.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows * height, columns * width, depth)


def tile_table(tiles: TileSet, kernel: Array) -> Array:
    """The summands that each kind of tile adds to its outputs, for a kernel [8, 8, 3, O].

    Axes [2, 2, kinds * 3, 3 * O]: parity of the tile's row, of its column, kind and output row, output column and channel.
    """
    chex.assert_shape(kernel, (SIZE, SIZE, 3, None))
    features = kernel.shape[-1]
    pixels = jnp.asarray(tiles.pictures).reshape(len(tiles.pictures), -1).astype(kernel.dtype)
    # The margin makes every part of the kernel over a tile a slice.
    margin = 2 * TILE
    wide = jnp.pad(kernel, ((margin, margin), (margin, margin), (0, 0), (0, 0)))

    def starts(parity: int) -> list[int]:
        """Where the kernel over a tile of this parity begins, for each output in one direction."""
        return [margin + TILE * parity - STRIDE * (i - 1 + parity) for i in range(TOUCHED)]

    def part(row: int, column: int) -> Array:
        parts = [wide[y : y + TILE, x : x + TILE] for y in starts(row) for x in starts(column)]
        flat = jnp.stack(parts, axis=-2).reshape(pixels.shape[1], -1)
        return (pixels @ flat).reshape(-1, TOUCHED * features)

    return jnp.stack([jnp.stack([part(row, column) for column in (0, 1)]) for row in (0, 1)])


def convolve_tiles(table: Array, kinds: Array) -> Array:
    """Cross-correlation with stride 4 of pictures of tiles, [N, rows * 6 // 4 - 1, columns * 6 // 4 - 1, O].

    The table is a `tile_table`, kinds are int32 [N, rows, columns]; rows and columns are even.
    """
    chex.assert_rank([table, kinds], [4, 3])
    count, rows, columns = kinds.shape
    height, width = rows // 2 * TOUCHED, columns // 2 * TOUCHED
    total = jnp.zeros((), table.dtype)
    for row in (0, 1):
        for column in (0, 1):
            cells = kinds[:, row::2, column::2]
            index = cells[:, :, None, :] * TOUCHED + jnp.arange(TOUCHED)[:, None]
            added = jnp.take(table[row, column], index, axis=0, mode="clip")
            added = added.reshape(count, height, width, -1)
            # Outputs of an even tile begin one before those of the next odd tile.
            total = total + added[:, 1 - row : height - row, 1 - column : width - column]
    return total
