"""Encoders of NetHack's map of glyphs: the whole map, and a window around the hero.

Both read the map transposed: the first spatial axis is the map's column, the second its row.
"""

from __future__ import annotations

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.nets import products
from motif_jax.nets.layers import (
    ACTIVATIONS,
    KernelAndBias,
    add_bias,
    convolve,
    flatten_channels_first,
)
from motif_jax.nets.status import MAP_COLUMNS, MAP_ROWS

NUM_GLYPHS = 5976
# Channels of all convolutions but the last, and of the last.
CHANNELS = 16
LAST_CHANNELS = 8
# Side of their kernels.
WIDTH = 3


def crop(glyphs: jax.Array, column: jax.Array, row: jax.Array, size: int) -> jax.Array:
    """Windows [N, size, size], rows by columns, of maps [N, 21, 79], in their dtype; cells outside
    of the map are 0.

    `column` and `row`, whole numbers [N], are the cell at [size // 2, size // 2] of the window.
    """
    chex.assert_rank([glyphs, column, row], [3, 1, 1])
    offsets = jnp.arange(size) - size // 2
    rows = row.astype(jnp.int32)[:, None, None] + offsets[:, None]
    columns = column.astype(jnp.int32)[:, None, None] + offsets
    inside = (rows >= 0) & (rows < MAP_ROWS) & (columns >= 0) & (columns < MAP_COLUMNS)
    # Cells outside are read anywhere and replaced: a negative index would read the other end.
    rows = jnp.clip(rows, 0, MAP_ROWS - 1)
    columns = jnp.clip(columns, 0, MAP_COLUMNS - 1)
    maps = jnp.arange(glyphs.shape[0])[:, None, None]
    return jnp.where(inside, jnp.asarray(glyphs)[maps, rows, columns], 0)


def crop_interpolated(glyphs: jax.Array, column: jax.Array, row: jax.Array, size: int) -> jax.Array:
    """The published window, int32: glyph numbers are interpolated bilinearly at fractional
    positions, then rounded.

    As published `column` and `row`, float32 [N], are the scaled status, so that the window is at
    the top left.
    """
    numbers = glyphs.astype(jnp.float32)
    left = jnp.floor(column)
    top = jnp.floor(row)
    right_share = (column - left)[:, None, None]
    bottom_share = (row - top)[:, None, None]

    def interpolate_columns(row: jax.Array) -> jax.Array:
        left_cells = crop(numbers, left, row, size)
        right_cells = crop(numbers, left + 1, row, size)
        return left_cells * (1 - right_share) + right_cells * right_share

    upper = interpolate_columns(top) * (1 - bottom_share)
    lower = interpolate_columns(top + 1) * bottom_share
    return jnp.round(upper + lower).astype(jnp.int32)


class GlyphConvolutions(nn.Module):
    """3x3 convolutions with padding 1 and ELU over embedded glyphs, flattened in the order channel,
    column, row.

    Attributes:
      prefix: of the layers' names, 'crop' or 'glyph'.
      num_layers: number of convolutions; they have 16 channels, the last one 8.
    """

    prefix: str
    num_layers: int = 2
    stride: int = 1
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, embedding: jax.Array, glyphs: jax.Array) -> jax.Array:
        """Features [N, F] of `glyphs`, integers [N, rows, columns], under `embedding` [5976, E]."""
        x = jnp.swapaxes(glyphs.astype(jnp.int32), 1, 2)
        for number in range(1, self.num_layers + 1):
            channels = LAST_CHANNELS if number == self.num_layers else CHANNELS
            inputs = embedding.shape[1] if number == 1 else CHANNELS
            weights = KernelAndBias(
                (WIDTH, WIDTH, inputs, channels), name=f"{self.prefix}_conv{number}"
            )()
            if number == 1:
                x = convolve_embedded(x, embedding.astype(self.dtype), weights, self.stride)
            else:
                x = convolve(x, weights, self.stride, padding=1)
            x = ACTIVATIONS["elu"](x)
        return flatten_channels_first(x)


def convolve_embedded(
    glyphs: jax.Array, embedding: jax.Array, weights: tuple[jax.Array, jax.Array], stride: int
) -> jax.Array:
    """`convolve` with padding 1 of glyphs int32 [N, H, W], embedded by [G, E], and a kernel
    [3, 3, E, O].

    Each of the 9 neighbours looks up a row of (embedding x kernel), which has 16 channels where the
    embedding has 128. The result is [N, ceil(H / stride), ceil(W / stride), O] in the dtype of
    `embedding`.
    """
    kernel, bias = weights
    num_glyphs = len(embedding)
    # In float32, so that gradients of frequent glyphs are summed in float32.
    table = products.einsum("ge,hweo->hwgo", embedding, kernel.astype(embedding.dtype)).astype(
        jnp.float32
    )
    # A glyph more, of zeros, is the padding.
    table = jnp.pad(table, ((0, 0), (0, 0), (0, 1), (0, 0))).reshape(-1, kernel.shape[-1])
    padded = jnp.pad(glyphs, ((0, 0), (1, 1), (1, 1)), constant_values=num_glyphs)
    height, width = glyphs.shape[1:]
    total = jnp.zeros((), table.dtype)
    for i in range(WIDTH):
        for j in range(WIDTH):
            # Of each output the neighbour at (i, j), whose part of the kernel has rows of its own.
            cells = padded[:, i : i + height : stride, j : j + width : stride]
            first_row = (i * WIDTH + j) * (num_glyphs + 1)
            total = total + jnp.take(table, cells + first_row, axis=0)
    return add_bias(total.astype(embedding.dtype), bias)
