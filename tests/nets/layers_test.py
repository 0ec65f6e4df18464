"""Activations and fresh weights, recurrent layers, windows of glyphs, and encoders without
NetHack's pictures, against plain numpy.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.nets import reward
from motif_jax.nets.cores import Core, state_size
from motif_jax.nets.encoders import FlatEncoder, PictureEncoder
from motif_jax.nets.layers import (
    add_bias,
    convolve,
    convolve_blocks,
    elu,
    flatten_channels_first,
    scale_status,
    unit_rows,
)
from motif_jax.nets.running_statistics import with_statistics
from motif_jax.nets.tile_embedding import TileEmbeddingEncoder, hash_beginnings
from tests import plain_layers

STEPS = 4
ROWS = 2
INPUTS = 5
HIDDEN = 3
LAYERS = 2


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("steps", [STEPS, 1])
def test_cores_compute_as_pytorchs_and_reset_between_episodes(kind: str, steps: int) -> None:
    draws = np.random.default_rng(0)
    core = Core(kind, HIDDEN, LAYERS)
    x = draws.normal(size=(steps, ROWS, INPUTS))
    first = np.array([[False, True], [False, False], [True, False], [False, False]])[:steps]
    states = draws.normal(size=(1 if kind == "gru" else 2, LAYERS, ROWS, HIDDEN))
    start = np.moveaxis(states, 2, 0).reshape(ROWS, -1)
    assert start.shape[1] == state_size(kind, HIDDEN, LAYERS)
    shapes = jax.eval_shape(core.init, jax.random.key(0), x, start, first)["params"]
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape), shapes)

    outputs, final = jax.jit(core.apply)({"params": params}, x, start, first)

    plain_step = plain_layers.gru if kind == "gru" else plain_layers.lstm
    for t in range(steps):
        inputs = x[t]
        states = np.where(first[t][:, None], 0.0, states)
        for layer in range(LAYERS):
            name = kind if layer == 0 else f"{kind}{layer + 1}"
            states[:, layer] = plain_step(inputs, *states[:, layer], params, name)
            inputs = states[0, layer]
        np.testing.assert_allclose(outputs[t], inputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        final, np.moveaxis(states, 2, 0).reshape(ROWS, -1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_an_unrolled_core_computes_the_same(kind: str) -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=(STEPS + 1, ROWS, INPUTS))
    first = draws.random((STEPS + 1, ROWS)) < 0.3
    state = draws.normal(size=(ROWS, state_size(kind, HIDDEN, 1)))
    params = Core(kind, HIDDEN).init(jax.random.key(0), x, state, first)

    plain = jax.jit(Core(kind, HIDDEN).apply)(params, x, state, first)
    unrolled = jax.jit(Core(kind, HIDDEN, unroll=4).apply)(params, x, state, first)

    for plain_output, unrolled_output in zip(plain, unrolled, strict=True):
        np.testing.assert_allclose(plain_output, unrolled_output, rtol=1e-5, atol=1e-6)


# Values on both sides of 0, far ones too: the exponential of the far positive one would overflow.
ELU_INPUTS = jnp.array([-30.0, -2.0, -0.5, 0.0, 0.5, 2.0, 200.0])


def test_elu_is_the_exponential_below_zero() -> None:
    expected = np.where(ELU_INPUTS > 0, ELU_INPUTS, np.expm1(np.minimum(ELU_INPUTS, 0)))

    np.testing.assert_allclose(elu(ELU_INPUTS), expected, rtol=1e-6)


def test_elus_gradient_is_the_exponential_below_zero() -> None:
    gradient = jax.vmap(jax.grad(elu))(ELU_INPUTS)

    np.testing.assert_allclose(gradient, np.exp(np.minimum(ELU_INPUTS, 0)), rtol=1e-6, atol=1e-7)


def test_weights_of_each_output_start_with_norm_1() -> None:
    kernel = unit_rows(jax.random.key(0), (7, 3))

    np.testing.assert_allclose(np.linalg.norm(kernel, axis=0), np.ones(3), rtol=1e-6)
    assert np.unique(np.sign(kernel)).tolist() == [-1, 1]


def test_pictures_are_flattened_channel_by_channel() -> None:
    pictures = jnp.arange(2 * 2 * 3 * 2).reshape(2, 2, 3, 2)

    first, _ = flatten_channels_first(pictures)

    assert first.tolist() == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]


def test_a_sum_with_a_bias_has_the_rows_dtype() -> None:
    rows = jnp.full((1, 2), 256, jnp.bfloat16)

    total = add_bias(rows, jnp.array([0.0, 3.0], jnp.float32))

    assert total.dtype == jnp.bfloat16
    # 259 lies between 258 and 260, the neighbours of bfloat16.
    assert total.tolist() == [[256.0, 260.0]]


def test_a_convolution_of_squares_equals_that_of_pixels() -> None:
    draws = np.random.default_rng(0)
    pictures = jnp.asarray(draws.normal(size=(2, 24, 16, 3)), jnp.float32)
    weights = tuple(
        jnp.asarray(draws.normal(size=size), jnp.float32) for size in ((8, 8, 3, 5), (5,))
    )

    def loss(weights: Any, convolution: Any) -> Any:
        outputs = convolution(pictures, weights, 4)
        return jnp.sum(jnp.sin(outputs)), outputs

    (_, pixel_outputs), pixel_gradient = jax.value_and_grad(loss, has_aux=True)(weights, convolve)
    (_, square_outputs), square_gradient = jax.value_and_grad(loss, has_aux=True)(
        weights, convolve_blocks
    )

    assert pixel_outputs.shape == (2, 5, 3, 5)
    np.testing.assert_allclose(square_outputs, pixel_outputs, rtol=1e-4, atol=1e-4)
    for square_leaf, pixel_leaf in zip(square_gradient, pixel_gradient, strict=True):
        np.testing.assert_allclose(square_leaf, pixel_leaf, rtol=1e-4, atol=1e-4)


MAPS = np.arange(1, 2 * 21 * 79 + 1, dtype=np.int16).reshape(2, 21, 79)


def test_windows_surround_the_hero_and_are_blank_off_the_map() -> None:
    crop = jax.jit(reward.crop, static_argnums=3)

    windows = crop(jnp.asarray(MAPS), jnp.array([0, 78]), jnp.array([20, 3]), 4)

    padded_maps = np.pad(MAPS, ((0, 0), (4, 4), (4, 4)))
    np.testing.assert_array_equal(windows[0], padded_maps[0, 22:26, 2:6])
    np.testing.assert_array_equal(windows[1], padded_maps[1, 5:9, 80:84])


def test_windows_between_cells_are_interpolated() -> None:
    crop = jax.jit(reward.crop_interpolated, static_argnums=3)

    # A quarter of a cell to the right, and half a cell down.
    windows = crop(jnp.asarray(MAPS), jnp.array([5.25, 0]), jnp.array([7.5, 0]), 2)

    cells = MAPS[0, 6:9, 4:7].astype(np.float64)
    columns = 0.75 * cells[:, :2] + 0.25 * cells[:, 1:]
    np.testing.assert_array_equal(windows[0], np.round(0.5 * columns[:2] + 0.5 * columns[1:]))


def run_with_random_params(module: Any, *inputs: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Random parameters of a module, and its outputs with them."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    draws = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32) / 2, shapes)
    return params, np.asarray(jax.jit(module.apply)({"params": params}, *inputs))


@pytest.mark.parametrize("stride", [1, 2])
def test_glyphs_are_embedded_and_convolved_with_columns_before_rows(stride: int) -> None:
    draws = np.random.default_rng(1)
    cells = draws.integers(0, 7, (2, 5, 4)).astype(np.int16)
    table = draws.normal(size=(7, 3)).astype(np.float32)

    params, features = run_with_random_params(
        reward.GlyphConvolutions("crop", 2, stride), table, cells
    )

    x = table[cells.swapaxes(1, 2)]
    for name in ("crop_conv1", "crop_conv2"):
        x = plain_layers.convolution(x, params[name], stride)
        x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    expected = x.transpose(0, 3, 1, 2).reshape(2, -1)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-4)


def test_a_flat_encoder_joins_fields_in_order_and_convolves_pictures() -> None:
    draws = np.random.default_rng(2)
    rows = {
        "clock": draws.integers(0, 9, (2,)),
        "view": draws.integers(0, 256, (2, 40, 24, 3)),
        "words": draws.integers(0, 256, (2, 6)),
    }
    encoder = FlatEncoder(tuple(rows), ("words",), ("view",), 4, (5,), "tanh")

    params, features = run_with_random_params(
        encoder, {name: jnp.asarray(x) for name, x in rows.items()}
    )

    picture = params["picture0"]
    x = rows["view"] / 255.0
    # Sides of 40 become 20 and 10.
    for number, stride in enumerate((2, 2, 1, 1), start=1):
        x = plain_layers.convolution(x, picture[f"conv{number}"], stride)
        if number == 1:
            x = plain_layers.normed(x, picture["norm"], 1e-6)
        x = np.tanh(x)
    assert x.shape == (2, 10, 6, 32)
    view = np.tanh(plain_layers.linear(x.reshape(2, -1), picture["fc"]))
    joined = np.concatenate([rows["clock"][:, None], view, rows["words"] / 255.0], axis=-1)
    expected = np.tanh(plain_layers.linear(joined, params["flat_fc1"]))
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-4)


def test_whole_numbers_that_float32_rounds_are_scaled() -> None:
    encoder = FlatEncoder(("time",), (), (), 4, (), "tanh", scaled_fields=("time",))
    numbers = 1_700_000_000 + np.random.default_rng(0).integers(0, 2, (64, 1), np.int32)
    observation = {"time": jnp.asarray(numbers)}
    params = encoder.init(jax.random.key(0), observation)["params"]
    _, collections = encoder.apply({"params": params}, observation, mutable=["statistics"])

    params = with_statistics(params, collections["statistics"])
    scaled = encoder.apply({"params": params}, observation)

    np.testing.assert_allclose(np.std(scaled), 1.0, rtol=1e-3)


def test_a_picture_is_normalised_as_a_whole() -> None:
    pictures = np.random.default_rng(3).integers(0, 256, (2, 12, 10, 3))
    encoder = PictureEncoder(4, "relu", normalisation="picture")

    params, features = run_with_random_params(encoder, jnp.asarray(pictures))

    x = plain_layers.convolution(pictures / 255.0, params["conv1"])
    flat = x.reshape(2, -1)
    mean = flat.mean(-1)[:, None, None, None]
    deviation = np.sqrt(flat.var(-1) + 1e-6)[:, None, None, None]
    x = np.maximum((x - mean) / deviation * params["norm"]["scale"] + params["norm"]["bias"], 0)
    x = np.maximum(plain_layers.convolution(x, params["conv2"]), 0)
    expected = np.maximum(plain_layers.linear(x.reshape(2, -1), params["fc"]), 0)
    np.testing.assert_allclose(features, expected, rtol=1e-3, atol=1e-4)


def test_tiles_and_messages_are_sums_of_their_embeddings() -> None:
    draws = np.random.default_rng(4)
    chars = draws.integers(0, 256, (2, 3, 4), dtype=np.uint8)
    colors = draws.integers(0, 32, (2, 3, 4), dtype=np.uint8)
    fields = {
        "window_chars": chars,
        "window_colors": colors,
        "blstats": draws.integers(0, 99, (2, 27)),
        "message": draws.integers(0, 256, (2, 256), dtype=np.uint8),
    }

    params, features = run_with_random_params(TileEmbeddingEncoder(3, 4, 5, "relu"), fields)

    colors = colors % 16
    tiles = params["char_table"][chars, 0] + params["color_table"][0, colors]
    tiles = (tiles + params["tile_table"][chars, colors]).reshape(2, -1)
    status = np.asarray(scale_status(fields["blstats"]))
    image = np.maximum(plain_layers.linear(tiles, params["image_fc"]), 0)
    vector = np.maximum(plain_layers.linear(status, params["vector_fc"]), 0)
    message = params["message_table"][np.asarray(hash_beginnings(fields["message"]))].sum(axis=1)
    expected = np.concatenate([image, vector, status, message], axis=-1)
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)
