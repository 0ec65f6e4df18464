"""The reward network against the published one's numbers, in every combination of inputs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from motif_jax.nets import layout, message
from motif_jax.nets.reward import RewardArchitecture, RewardNetwork, hero_window
from motif_jax.nets.status import scale_status
from tests.golden_numbers import GRADIENT, assert_golden, recipe_reward
from tests.plain_layers import linear

pytestmark = pytest.mark.usefixtures("compiled_quickly")
VARIANTS = {
    "small": {"message": "lt_cnn_small"},
    "blstats": {"status": True},
    "blstats_crop": {"status": True, "crop": True},
    "blstats_crop_glyphs": {"status": True, "crop": True, "glyphs": True},
    "blstats_no_message": {"status": True, "message": "none"},
    "glyphs": {"glyphs": True},
    "small_blstats_crop_glyphs": {"message": "lt_cnn_small", "status": True, "crop": True, "glyphs": True},
}


def part_of(network, method):
    return lambda params, inputs: network.module.apply({"params": params}, inputs, method=method)


@pytest.mark.slow
def test_forward_equals_golden(golden):
    g = golden("reward_forward.npz")
    network, params = recipe_reward(golden("weight_shapes.json")["reward"])
    messages = jnp.asarray(g["messages"])
    for name, found in (
        ("message_features", network.message_features(params, messages)),
        ("encoder_output", part_of(network, "encode")(params, {"message": messages})),
        ("reward", network.reward(params, {"message": messages})),
    ):
        np.testing.assert_allclose(found, g[name], rtol=1e-5, atol=1e-5)
    network, _ = recipe_reward(golden("weight_shapes.json")["reward"], dtype="bfloat16")
    rewards = network.reward(params, {"message": messages})
    assert rewards.dtype == jnp.float32
    np.testing.assert_allclose(rewards, g["reward"], atol=0.1 * np.std(g["reward"]))
    assert np.abs(rewards - g["reward"]).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_inputs_equal_golden(golden, variant):
    g = golden("reward_inputs.npz")
    shapes = golden("reward_inputs_shapes.json")[variant]
    network, params = recipe_reward(shapes, glyph_crop_centre=True, **VARIANTS[variant])
    inputs = {"message": g["message"], "blstats": g["blstats_raw"].astype(np.int32), "glyphs": g["glyphs"]}
    inputs = {name: inputs[name] for name in network.architecture.fields}

    def loss(params):
        rewards = network.reward(params, inputs)
        others = (part_of(network, name)(params, inputs) for name in ("encode", "branches"))
        return jnp.mean(rewards**2), (rewards, *others)

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, (rewards, output, branches)), gradient = run(params)
    for name, found in (("encoder_output", output), ("reward", rewards), ("loss", value)):
        np.testing.assert_allclose(found, g[f"{variant}/{name}"], rtol=1e-5, atol=1e-5)
    assert_golden(layout.to_torch(gradient), g, f"{variant}/gradient", GRADIENT)
    names = {"status": "blstats_branch", "crop": "crop_branch", "glyphs": "glyphs_branch"}
    names["message"] = "message_branch_small" if "small" in variant else "message_branch"
    for name, features in branches.items():
        np.testing.assert_allclose(features, g[names[name]], rtol=1e-5, atol=1e-5, err_msg=name)


def test_status_and_the_window_that_follows_the_hero_equal_golden(golden):
    g = golden("reward_inputs.npz")
    for columns in (26, 27):
        status = jax.jit(scale_status)(g["blstats_raw"][:, :columns].astype(np.int32))
        np.testing.assert_allclose(status, g["blstats_features"], rtol=1e-6)
        np.testing.assert_allclose(status[:, :2], g["crop_coordinates"], rtol=1e-6)
    inputs = {"blstats": jnp.asarray(g["blstats_raw"], jnp.int32), "glyphs": g["glyphs"]}
    for switch, name in ((True, "crop_glyphs"), (False, "crop_glyphs_if_raw_coordinates")):
        architecture = RewardArchitecture(status=True, crop=True, glyph_crop_centre=switch)
        window = jax.jit(functools.partial(hero_window, architecture))(inputs)
        np.testing.assert_array_equal(window, g[name])


def test_an_architecture_says_what_it_reads_and_what_is_wrong_with_it():
    given = {"status": True, "message": "none"}, {"crop": True}, {"glyphs": True}, {}
    made = [RewardArchitecture(**each) for each in given]
    status, crop, glyphs, plain = (each.fields for each in made)
    assert (status, crop) == (("blstats",), ("message", "blstats", "glyphs"))
    assert (glyphs, plain) == (("message", "glyphs"), ("message",))
    assert [each.message_only for each in made] == [False, False, False, True]
    nothing = "^at least one of message, status, crop, glyphs must be read$"
    for wrong, said in (
        (given[1], "^the crop needs the status: set status=True$"),
        ({"message": "none"}, nothing),
    ):
        with pytest.raises(ValueError, match=said):
            RewardNetwork(RewardArchitecture(**wrong))


def test_a_message_is_what_plain_numpy_makes_of_it_whatever_is_known_of_its_length():
    shape = message.MessageShape(40, 3, ((4, 5, True), (5, 3, False), (3, 2, True)), (6, 2))
    draws, encoder = np.random.default_rng(0), message.MessageEncoder(shape)
    texts = draws.integers(0, 256, (3, 256)).astype(np.uint8)
    texts[1:, 11:], texts[2], texts[0, 7:9] = 0, 0, 0
    abstract = jax.eval_shape(encoder.init, jax.random.key(0), texts)["params"]
    params = jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype(np.float32), abstract)
    x = np.where(texts[:, :40, None] > 0, params["embedding"]["embedding"][texts[:, :40]], 0)
    for number, (_, width, pooled) in enumerate(shape.convolutions, start=1):
        layer, windows = params[f"conv{number}"], sliding_window_view(x, width, axis=1)
        x = np.maximum(np.einsum("ntcw,wco->nto", windows, layer["kernel"]) + layer["bias"], 0)
        if pooled:
            x = x[:, : x.shape[1] // 3 * 3].reshape(3, -1, 3, x.shape[2]).max(axis=2)
    x = x.swapaxes(1, 2).reshape(3, -1)
    for name in ("message_fc1", "message_fc2"):
        x = np.maximum(linear(x, params[name]), 0)
    run = jax.jit(encoder.apply, static_argnums=2)
    np.testing.assert_allclose(run({"params": params}, texts, None), x, rtol=1e-4, atol=1e-4)
    for length, first in ((11, 1), (12, 1), (20, 1), (0, 2)):
        found = run({"params": params}, texts[first:], length)
        np.testing.assert_allclose(found, x[first:], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_fresh_network_is_as_published():
    network = RewardNetwork(RewardArchitecture())
    params = jax.jit(network.init)(jax.random.key(0))
    named = layout.to_torch(params)
    np.testing.assert_allclose(named["fc2/weight"].T @ named["fc2/weight"], np.eye(256), atol=1e-5)
    assert not named["fc2/bias"].any()
    assert named["conv1/bias"].any()
    assert np.abs(named["conv2/weight"]).max() <= 1 / np.sqrt(7 * 64)
    drawn = np.random.default_rng(0).integers(32, 127, (64, 60), np.uint8)
    messages = np.pad(drawn, ((0, 0), (0, 196)))
    spread = float(np.std(network.reward(params, {"message": messages})))
    assert 1e-5 < spread < 1e-1
