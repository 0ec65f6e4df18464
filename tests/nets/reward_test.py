"""The reward network against the published one's numbers, in every combination of inputs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from motif_jax.nets import layout, message
from motif_jax.nets.layers import scale_status
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork, hero_window
from tests.golden_numbers import GRADIENT, assert_golden, recipe_reward
from tests.plain_layers import linear

VARIANTS = {
    "small": {"message": "lt_cnn_small"},
    "blstats": {"status": True},
    "blstats_crop": {"status": True, "crop": True},
    "blstats_crop_glyphs": {"status": True, "crop": True, "glyphs": True},
    "blstats_no_message": {"status": True, "message": "none"},
    "glyphs": {"glyphs": True},
    "small_blstats_crop_glyphs": {
        "message": "lt_cnn_small",
        "status": True,
        "crop": True,
        "glyphs": True,
    },
}


def part_of(network, method):
    return lambda params, inputs: network.module.apply({"params": params}, inputs, method=method)


@pytest.mark.slow
def test_forward_equals_golden(golden):
    numbers = golden("reward_forward.npz")
    network, params = recipe_reward(golden("weight_shapes.json")["reward"])
    messages = jnp.asarray(numbers["messages"])

    outputs = {
        "message_features": network.message_features(params, messages),
        "encoder_output": part_of(network, "encode")(params, {"message": messages}),
        "reward": network.reward(params, {"message": messages}),
    }

    for name, output in outputs.items():
        np.testing.assert_allclose(output, numbers[name], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_bfloat16_gives_float32_rewards_near_the_golden_ones(golden):
    numbers = golden("reward_forward.npz")
    network, params = recipe_reward(golden("weight_shapes.json")["reward"], dtype="bfloat16")

    rewards = network.reward(params, {"message": jnp.asarray(numbers["messages"])})

    assert rewards.dtype == jnp.float32
    np.testing.assert_allclose(rewards, numbers["reward"], atol=0.1 * np.std(numbers["reward"]))
    # Else it computed in float32.
    assert np.abs(rewards - numbers["reward"]).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_inputs_equal_golden(golden, variant):
    numbers = golden("reward_inputs.npz")
    shapes = golden("reward_inputs_shapes.json")[variant]
    network, params = recipe_reward(shapes, glyph_crop_centre=True, **VARIANTS[variant])
    fields = {
        "message": numbers["message"],
        "blstats": numbers["blstats_raw"].astype(np.int32),
        "glyphs": numbers["glyphs"],
    }
    inputs = {name: fields[name] for name in network.architecture.fields}

    def loss(params):
        rewards = network.reward(params, inputs)
        encoder_output = part_of(network, "encode")(params, inputs)
        branches = part_of(network, "branches")(params, inputs)
        return jnp.mean(rewards**2), (rewards, encoder_output, branches)

    (value, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

    rewards, encoder_output, branches = outputs
    np.testing.assert_allclose(
        encoder_output, numbers[f"{variant}/encoder_output"], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(rewards, numbers[f"{variant}/reward"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value, numbers[f"{variant}/loss"], rtol=1e-5, atol=1e-5)
    assert_golden(layout.to_torch(gradient), numbers, f"{variant}/gradient", GRADIENT)
    golden_names = {
        "status": "blstats_branch",
        "crop": "crop_branch",
        "glyphs": "glyphs_branch",
        "message": "message_branch_small" if "small" in variant else "message_branch",
    }
    for name, features in branches.items():
        expected = numbers[golden_names[name]]
        np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("columns", [26, 27])
def test_the_scaled_status_equals_golden(golden, columns):
    numbers = golden("reward_inputs.npz")

    status = jax.jit(scale_status)(numbers["blstats_raw"][:, :columns].astype(np.int32))

    np.testing.assert_allclose(status, numbers["blstats_features"], rtol=1e-6)
    np.testing.assert_allclose(status[:, :2], numbers["crop_coordinates"], rtol=1e-6)


@pytest.mark.parametrize(
    ("as_published", "name"), [(True, "crop_glyphs"), (False, "crop_glyphs_if_raw_coordinates")]
)
def test_the_window_around_the_hero_equals_golden(golden, as_published, name):
    numbers = golden("reward_inputs.npz")
    inputs = {
        "blstats": jnp.asarray(numbers["blstats_raw"], jnp.int32),
        "glyphs": numbers["glyphs"],
    }
    architecture = RewardArchitecture(status=True, crop=True, glyph_crop_centre=as_published)

    window = jax.jit(functools.partial(hero_window, architecture))(inputs)

    np.testing.assert_array_equal(window, numbers[name])


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"status": True, "message": "none"}, ("blstats",)),
        ({"crop": True}, ("message", "blstats", "glyphs")),
        ({"glyphs": True}, ("message", "glyphs")),
        ({}, ("message",)),
    ],
)
def test_an_architecture_names_the_fields_that_it_reads(settings, fields):
    architecture = RewardArchitecture(**settings)

    assert architecture.fields == fields
    assert architecture.message_only == (fields == ("message",))


def test_a_message_encoder_computes_what_numpy_does_for_any_length():
    shape = message.MessageShape(40, 3, ((4, 5, True), (5, 3, False), (3, 2, True)), (6, 2))
    encoder = message.MessageEncoder(shape)
    draws = np.random.default_rng(0)
    # A full message with zeros inside, one of 11 bytes, and an empty one.
    texts = draws.integers(0, 256, (3, 256)).astype(np.uint8)
    texts[0, 7:9] = 0
    texts[1, 11:] = 0
    texts[2] = 0
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), texts)["params"]
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32), shapes)

    x = np.where(texts[:, :40, None] > 0, params["embedding"]["embedding"][texts[:, :40]], 0)
    for number, (_, width, pooled) in enumerate(shape.convolutions, start=1):
        layer = params[f"conv{number}"]
        windows = sliding_window_view(x, width, axis=1)
        x = np.maximum(np.einsum("ntcw,wco->nto", windows, layer["kernel"]) + layer["bias"], 0)
        if pooled:
            x = x[:, : x.shape[1] // 3 * 3].reshape(3, -1, 3, x.shape[2]).max(axis=2)
    expected = x.swapaxes(1, 2).reshape(3, -1)
    for name in ("message_fc1", "message_fc2"):
        expected = np.maximum(linear(expected, params[name]), 0)

    run = jax.jit(encoder.apply, static_argnums=2)
    np.testing.assert_allclose(run({"params": params}, texts, None), expected, rtol=1e-4, atol=1e-4)
    for max_length, first in ((11, 1), (12, 1), (20, 1), (0, 2)):
        features = run({"params": params}, texts[first:], max_length)
        np.testing.assert_allclose(features, expected[first:], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_fresh_network_is_as_published():
    network = RewardNetwork(RewardArchitecture())

    params = jax.jit(network.init)(jax.random.key(0))

    tensors = layout.to_torch(params)
    np.testing.assert_allclose(
        tensors["fc2/weight"].T @ tensors["fc2/weight"], np.eye(256), atol=1e-5
    )
    assert not tensors["fc2/bias"].any()
    assert tensors["conv1/bias"].any()
    assert np.abs(tensors["conv2/weight"]).max() <= 1 / np.sqrt(7 * 64)
    texts = np.random.default_rng(0).integers(32, 127, (64, 60), np.uint8)
    messages = np.pad(texts, ((0, 0), (0, 196)))
    deviation = float(np.std(network.reward(params, {"message": messages})))
    assert 1e-5 < deviation < 1e-1
