"""Pictures of tiles, their first convolution by a table, and the encoder without convolutions,
against plain numpy.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets.image import ImageEncoder, TileSet, convolve_tiles, tile_table

DRAWS = np.random.default_rng(0)
PICTURES = DRAWS.integers(0, 256, (5, 16, 6, 6, 3), dtype=np.uint8)
CHARS = DRAWS.integers(0, 5, (2, 4, 6))
COLORS = DRAWS.integers(0, 16, (2, 4, 6))
# Tiles beside each other: rows and columns of tiles, each of rows and columns of pixels.
DRAWN = PICTURES[CHARS, COLORS].transpose(0, 1, 3, 2, 4, 5).reshape(2, 24, 36, 3)


def test_equal_tiles_are_one_kind() -> None:
    tiles = TileSet(np.concatenate([PICTURES, PICTURES[:2]]))

    assert tiles.pictures.shape == (80, 6, 6, 3)
    assert tiles.kind.shape == (7, 16)
    np.testing.assert_array_equal(tiles.kind[5:], tiles.kind[:2])


# A terminal has 16 colours: higher bits do not count.
@pytest.mark.parametrize("higher_bits", [0, 16, 240])
def test_a_picture_is_drawn_of_its_tiles(higher_bits: int) -> None:
    tiles = TileSet(PICTURES)
    chars = jnp.asarray(CHARS, jnp.uint8)
    colors = jnp.asarray(COLORS + higher_bits, jnp.uint8)

    pictures = tiles.draw(tiles.look_up(chars, colors))

    np.testing.assert_array_equal(pictures, DRAWN)


def test_a_table_gives_the_convolution_of_the_picture() -> None:
    tiles = TileSet(PICTURES)
    kernel = DRAWS.normal(size=(8, 8, 3, 2))

    def run(kernel: jax.Array) -> jax.Array:
        return convolve_tiles(tile_table(tiles, kernel), tiles.look_up(CHARS, COLORS))

    outputs = jax.jit(run)(jnp.asarray(kernel))

    assert outputs.shape == (2, 5, 8, 2)
    for row, column in np.ndindex(5, 8):
        patch = DRAWN[:, 4 * row : 4 * row + 8, 4 * column : 4 * column + 8].astype(np.float64)
        expected = np.einsum("nijc,ijco->no", patch, kernel)
        np.testing.assert_allclose(outputs[:, row, column], expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("nonlinearity", "act"), [("relu", lambda x: np.maximum(x, 0)), ("tanh", np.tanh)]
)
def test_an_encoder_without_convolutions_is_two_layers_on_the_pixels(nonlinearity, act) -> None:
    encoder = ImageEncoder(TileSet(PICTURES), "mlp", 4, 255.0, nonlinearity, look_up=False)
    layers = {
        f"image_fc{n}": {"kernel": DRAWS.normal(size=shape) * 0.05, "bias": DRAWS.normal(size=4)}
        for n, shape in ((1, (DRAWN[0].size, 4)), (2, (4, 4)))
    }
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), layers)

    features = jax.jit(encoder.apply)({"params": params}, jnp.asarray(CHARS), jnp.asarray(COLORS))

    expected = DRAWN.transpose(0, 3, 1, 2).reshape(2, -1) / 255.0  # channels first, as published
    for layer in layers.values():
        expected = act(expected @ layer["kernel"] + layer["bias"])
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)
