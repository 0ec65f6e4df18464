"""Recurrent layers, windows of glyphs, and encoders without NetHack's pictures, against plain numpy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets import glyphs
from motif_jax.nets.cores import Core, state_size
from motif_jax.nets.encoders import FlatEncoder
from motif_jax.nets.layers import convolve, convolve_blocks
from motif_jax.nets.status import scale_status
from motif_jax.nets.tile_embedding import TileEmbeddingEncoder, hash_beginnings
from tests import plain_layers

STEPS, ROWS, INPUTS, HIDDEN, LAYERS = 4, 2, 5, 3, 2


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("steps", [STEPS, 1])
def test_cores_are_pytorchs_with_a_fresh_state_at_the_start_of_an_episode(kind: str, steps: int) -> None:
    draws, core = np.random.default_rng(0), Core(kind, HIDDEN, LAYERS)
    x = draws.normal(size=(steps, ROWS, INPUTS))
    first = np.array([[False, True], [False, False], [True, False], [False, False]])[:steps]
    states = draws.normal(size=(1 if kind == "gru" else 2, LAYERS, ROWS, HIDDEN))
    given = np.moveaxis(states, 2, 0).reshape(ROWS, -1)
    assert given.shape[1] == state_size(kind, HIDDEN, LAYERS)
    shapes = jax.eval_shape(core.init, jax.random.key(0), x, given, first)["params"]
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape), shapes)
    outputs, final = jax.jit(core.apply)({"params": params}, x, given, first)
    for t in range(steps):
        inputs, states = x[t], np.where(first[t][:, None], 0.0, states)
        for place in range(LAYERS):
            name = kind + (str(place + 1) if place else "")
            plain = plain_layers.gru if kind == "gru" else plain_layers.lstm
            states[:, place] = plain(inputs, *states[:, place], params, name)
            inputs = states[0, place]
        np.testing.assert_allclose(outputs[t], inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(final, np.moveaxis(states, 2, 0).reshape(ROWS, -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_unrolled_core_computes_the_same(kind: str) -> None:
    draws = np.random.default_rng(0)
    x, first = draws.normal(size=(STEPS + 1, ROWS, INPUTS)), draws.random((STEPS + 1, ROWS)) < 0.3
    state = draws.normal(size=(ROWS, state_size(kind, HIDDEN, 1)))
    params = Core(kind, HIDDEN).init(jax.random.key(0), x, state, first)
    plain, unrolled = (
        jax.jit(Core(kind, HIDDEN, unroll=unroll).apply)(params, x, state, first) for unroll in (1, 4)
    )
    for one, other in zip(plain, unrolled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_convolution_of_squares_is_that_of_pixels() -> None:
    draws = np.random.default_rng(0)
    pictures = jnp.asarray(draws.normal(size=(2, 24, 16, 3)), jnp.float32)
    weights = tuple(jnp.asarray(draws.normal(size=size), jnp.float32) for size in ((8, 8, 3, 5), (5,)))

    def loss(weights: Any, convolution: Any) -> Any:
        outputs = convolution(pictures, weights, 4)
        return jnp.sum(jnp.sin(outputs)), outputs

    of_pixels, of_squares = (
        jax.value_and_grad(loss, has_aux=True)(weights, each) for each in (convolve, convolve_blocks)
    )
    assert of_pixels[0][1].shape == (2, 5, 3, 5)
    for one, other in zip(jax.tree.leaves(of_pixels), jax.tree.leaves(of_squares), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_windows_lie_round_the_hero_and_are_blank_outside_of_the_map() -> None:
    maps = np.arange(1, 2 * 21 * 79 + 1, dtype=np.int16).reshape(2, 21, 79)
    crop, interpolated = (jax.jit(f, static_argnums=3) for f in (glyphs.crop, glyphs.crop_interpolated))
    found = crop(jnp.asarray(maps), jnp.array([0, 78]), jnp.array([20, 3]), 4)
    around = np.pad(maps, ((0, 0), (4, 4), (4, 4)))
    np.testing.assert_array_equal(found[0], around[0, 22:26, 2:6])
    np.testing.assert_array_equal(found[1], around[1, 5:9, 80:84])
    # A quarter right and half down: of the four corners these shares.
    between = interpolated(jnp.asarray(maps), jnp.array([5.25, 0]), jnp.array([7.5, 0]), 2)
    corners = maps[0, 6:9, 4:7].astype(np.float64)
    across = 0.75 * corners[:, :2] + 0.25 * corners[:, 1:]
    np.testing.assert_array_equal(between[0], np.round(0.5 * across[:2] + 0.5 * across[1:]))


def drawn(module: Any, *inputs: Any) -> tuple[dict[str, Any], np.ndarray]:
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    draws = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32) / 2, shapes)
    return params, np.asarray(jax.jit(module.apply)({"params": params}, *inputs))


@pytest.mark.parametrize("stride", [1, 2])
def test_glyphs_are_embedded_and_convolved_with_columns_before_rows(stride: int) -> None:
    draws = np.random.default_rng(1)
    cells = draws.integers(0, 7, (2, 5, 4)).astype(np.int16)
    table = draws.normal(size=(7, 3)).astype(np.float32)
    params, found = drawn(glyphs.GlyphConvolutions("crop", 2, stride), table, cells)
    x = table[cells.swapaxes(1, 2)]
    for name in ("crop_conv1", "crop_conv2"):
        x = plain_layers.convolution(x, params[name], stride)
        x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    np.testing.assert_allclose(found, x.transpose(0, 3, 1, 2).reshape(2, -1), rtol=1e-3, atol=1e-4)


def test_fields_as_numbers_stand_in_order_and_pictures_are_convolved() -> None:
    draws = np.random.default_rng(2)
    rows = {"clock": draws.integers(0, 9, (2,)), "view": draws.integers(0, 256, (2, 40, 24, 3))}
    rows |= {"words": draws.integers(0, 256, (2, 6))}
    encoder = FlatEncoder(tuple(rows), ("words",), ("view",), 4, (5,), "tanh")
    params, found = drawn(encoder, {name: jnp.asarray(x) for name, x in rows.items()})
    picture, x = params["picture0"], rows["view"] / 255.0
    for i, stride in enumerate((2, 2, 1, 1), start=1):  # sides of 40 become 20 and 10
        x = plain_layers.convolution(x, picture[f"conv{i}"], stride)
        x = np.tanh(plain_layers.normed(x, picture["norm"], 1e-6) if i == 1 else x)
    assert x.shape == (2, 10, 6, 32)
    view = np.tanh(plain_layers.linear(x.reshape(2, -1), picture["fc"]))
    joined = np.concatenate([rows["clock"][:, None], view, rows["words"] / 255.0], axis=-1)
    expected = np.tanh(plain_layers.linear(joined, params["flat_fc1"]))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_tiles_and_messages_are_sums_of_their_embeddings() -> None:
    draws = np.random.default_rng(4)
    chars = draws.integers(0, 256, (2, 3, 4), dtype=np.uint8)
    colors = draws.integers(0, 32, (2, 3, 4), dtype=np.uint8)
    fields = {"window_chars": chars, "window_colors": colors, "blstats": draws.integers(0, 99, (2, 27))}
    fields["message"] = draws.integers(0, 256, (2, 256), dtype=np.uint8)
    params, found = drawn(TileEmbeddingEncoder(3, 4, 5, "relu"), fields)
    colors = colors % 16
    tiles = params["char_table"][chars, 0] + params["color_table"][0, colors]
    tiles = (tiles + params["tile_table"][chars, colors]).reshape(2, -1)
    status = np.asarray(scale_status(fields["blstats"]))
    image = np.maximum(plain_layers.linear(tiles, params["image_fc"]), 0)
    vector = np.maximum(plain_layers.linear(status, params["vector_fc"]), 0)
    message = params["message_table"][np.asarray(hash_beginnings(fields["message"]))].sum(axis=1)
    expected = np.concatenate([image, vector, status, message], axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
