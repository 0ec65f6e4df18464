"""The agent's network against the golden numbers, in all its forms."""

from __future__ import annotations

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.nethack import status
from motif_jax.nets import agent, layout, tile_embedding, underfoot
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.nets.config import GameNetwork
from tests import agents
from tests.golden_numbers import GRADIENT, Closeness, assert_golden, recipe_params
from tests.nets.film_test import network as make_symbolic

pytestmark = pytest.mark.usefixtures("compiled_quickly")
VARIANTS: dict[str, dict[str, Any]] = {
    "lstm": {"core": "lstm"},
    "no_rnn": {"core": "none"},
    "convnet_impala": {"image_encoder": "convnet_impala"},
    "resnet_impala": {"image_encoder": "resnet_impala"},
    "resnet_impala_reduced": {"image_encoder": "resnet_impala"},
}
SMALL = {"image_features": 16, "vector_features": 8, "message_features": 8, "hidden_size": 16}
# What takes longest to compile: the residual network once in the default set.
LARGE = [
    pytest.param("convnet_impala", marks=pytest.mark.extra),
    pytest.param("resnet_impala", marks=pytest.mark.extra),
    pytest.param("resnet_impala_reduced", marks=pytest.mark.slow),
]


def golden_observation(numbers: Any, prefix: str = "") -> dict[str, np.ndarray]:
    return agents.observation_of(*(numbers[prefix + key] for key in ("image", "blstats_features", "message")))


def features_of(network: agent.AgentNetwork, params: Any, observation: dict[str, Any]) -> np.ndarray:
    encode = functools.partial(network.module.apply, method=lambda module, x: module.actor.encoder(x))
    return np.asarray(jax.jit(encode)({"params": params}, observation))


@pytest.mark.slow
def test_one_step_is_the_golden_one(golden: Any) -> None:
    numbers = golden("actor_critic_step.npz")
    network = agents.nethack_network(first_convolution="table")
    params = recipe_params(network, golden("weight_shapes.json")["actor_critic"])
    observation = golden_observation(numbers)
    encoded = features_of(network, params, observation)
    np.testing.assert_allclose(encoded, numbers["encoder_output"], rtol=1e-5, atol=1e-5)
    rows = {name: x[None] for name, x in observation.items()}
    # Prepared parameters look the first convolution up; bare ones draw so few pictures.
    prepared, picture = jax.jit(network.prepare)(params), agents.nethack_network(first_convolution="picture")
    assert jax.tree.leaves(prepared.tables)
    assert not jax.tree.leaves(jax.jit(picture.prepare)(params).tables)
    for given in (params, prepared):
        logits, value, state = jax.jit(network.apply)(
            given, rows, numbers["state_in"], np.zeros((1, 8), bool)
        )
        for found, key in ((logits[0], "logits"), (value[0], "value"), (state, "state_out")):
            np.testing.assert_allclose(found, numbers[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "no_rnn", *LARGE])
def test_variants_are_the_golden_ones_and_reset_between_episodes(golden: Any, name: str) -> None:
    numbers, network = golden("core_variants.npz"), agents.nethack_network(**VARIANTS[name])
    params = recipe_params(network, golden("core_variants_shapes.json")[name])
    if name == "resnet_impala_reduced":
        for key, layer in params["actor"]["encoder"]["image"].items():
            layer["kernel"] *= 0.5 if "stage" in key else 1.0
    if name == "no_rnn":
        state_in, state = numbers["no_rnn/step/state_in"], np.zeros((4, 1), np.float32)
    else:
        keys = ("state_in_1024", "sequence_state_in_1024")
        state_in, state = (numbers[key][:, : network.state_size] for key in keys)
    observation = golden_observation(numbers, "step/")
    # The residual network's recipe weights grow activations to 100 and more.
    loose, tolerance = (3e-4, 1e-4) if name == "resnet_impala" else (1e-5, 1e-5)
    encoded = features_of(network, params, observation)
    np.testing.assert_allclose(encoded, numbers[f"{name}/step/encoder_output"], rtol=loose, atol=loose)
    rows = {field: x[None] for field, x in observation.items()}

    def loss(p: Any) -> tuple[jax.Array, Any]:
        logits, value, state = network.apply(p, rows, state_in, jnp.zeros((1, 4), bool))
        return jnp.mean(value**2) + jnp.mean(logits**2), (logits[0], value[0], state)

    (total, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    for output, key in zip(outputs, ("logits", "value", "state_out"), strict=True):
        np.testing.assert_allclose(output, numbers[f"{name}/step/{key}"], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(total, numbers[f"{name}/step/loss"], rtol=tolerance)
    # Measured with the residual network: 8.4e-6, 5.4e-5 and 1.0e-3.
    limit = Closeness(norm=3e-5, entry=2e-4, total=3e-3) if name == "resnet_impala" else GRADIENT
    assert_golden(layout.to_torch(gradient), numbers, f"{name}/step/gradient", limit)
    sequences = jax.tree.map(agents.time_major, golden_observation(numbers, "sequence/"))
    first = np.pad(agents.time_major(numbers["sequence/dones"]) > 0, ((1, 0), (0, 0)))[:-1]
    logits, value, final = jax.jit(network.apply)(params, sequences, state, first)
    found = {"logits": agents.time_major(logits), "value": agents.time_major(value), "final_state": final}
    for key, x in found.items():
        np.testing.assert_allclose(x, numbers[f"{name}/sequence/{key}"], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_parameters_start_as_published() -> None:
    tensors = layout.to_torch(agents.nethack_network().init(jax.random.key(0)))
    for name, tensor in tensors.items():
        if name.startswith("gru"):
            assert np.abs(tensor).max() <= 1 / np.sqrt(512)
            assert np.std(tensor) == pytest.approx(1 / np.sqrt(3 * 512), rel=0.05)
        elif name.endswith("bias"):
            assert not tensor.any()
        else:
            matrix = tensor.reshape(tensor.shape[0], -1)
            small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
            np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-5)


@pytest.mark.slow
def fresh(network: Any, seed: int = 0) -> dict[str, np.ndarray]:
    return layout.to_torch(jax.jit(network.init)(jax.random.key(seed)))


TINY = {"hidden_size": 5, "image_features": 4, "vector_features": 3, "message_features": 2, "core_layers": 2}


@pytest.mark.slow
def test_fresh_parameters_follow_their_key() -> None:
    network = agents.nethack_network(encoder="tiles_underfoot", core="lstm", separate_critic=True, **TINY)
    one, same, other = fresh(network), fresh(network), fresh(network, seed=1)
    for name, tensor in one.items():
        np.testing.assert_array_equal(tensor, same[name])
    assert any(not np.array_equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.slow
def test_an_lstm_starts_as_pytorchs() -> None:
    tensors = fresh(agents.nethack_network(core="lstm", **TINY))
    of_core = [tensor for name, tensor in tensors.items() if name.startswith("lstm")]
    assert of_core
    for tensor in of_core:
        assert 0.5 / np.sqrt(5) < np.abs(tensor).max() <= 1 / np.sqrt(5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [make_symbolic(), MessageClassifier("lt_cnn_small")], ids=["film", "classifier"]
)
def test_fresh_networks_are_finite_and_no_matrix_is_zero(network: Any) -> None:
    for name, tensor in fresh(network).items():
        assert np.isfinite(tensor).all(), name
        if tensor.ndim > 1:
            assert tensor.std() > 0, name


def test_layout_goes_both_ways_and_names_what_does_not_fit() -> None:
    network = agents.nethack_network(separate_critic=True, hidden_size=8, core_layers=2)
    params = agents.random_params(network, 1)
    tensors = layout.to_torch(params)
    assert {"actor/gru2_input/weight", "critic/image_fc/bias"} <= set(tensors)
    chex.assert_trees_all_equal(layout.from_torch(tensors, params), params)
    with pytest.raises(
        ValueError, match=r"^tensor value_head/bias has shape \(2,\), which does not fit \(1,\)$"
    ):
        layout.from_torch({**tensors, "value_head/bias": np.zeros(2)}, params)
    del tensors["value_head/bias"]
    with pytest.raises(
        ValueError,
        match=r"^tensors do not fit the network: missing \['value_head/bias'\], unexpected \['x'\]$",
    ):
        layout.from_torch({**tensors, "x": np.zeros(1)}, params)


@pytest.mark.slow
def test_separate_networks_share_nothing() -> None:
    network = agents.flat_network(separate_critic=True)
    params = agents.random_params(network)
    observation = {"signal": np.ones((1, 2, 5), np.float32), "clock": np.ones((1, 2), np.int32)}

    def run(p: Any, state: Any) -> Any:
        return network.apply(p, observation, state, np.zeros((1, 2), bool))

    state = network.initial_state(2)
    before, after = (jax.jit(run)(params, given) for given in (state, state.at[:, :16].set(0.5)))
    np.testing.assert_array_equal(before[1], after[1])  # of the actor's state
    assert np.all(before[0] != after[0])
    gradient = jax.grad(lambda p: run(p, state)[1].sum())(params)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient["actor"]))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient["critic"]["encoder"]))


def network_input(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    fields = agents.NETHACK_SPEC.observation.items()
    most = {name: 16 if "colors" in name else 256 for name, _ in fields}
    return {name: rng.integers(0, most[name], (1, batch, *of.shape)).astype(of.dtype) for name, of in fields}


@pytest.mark.slow
def test_the_tile_under_the_hero_is_the_one_that_lay_there_before() -> None:
    rows = 8
    chars, numbers = np.full((rows, 1, 12, 12), ord("."), np.uint8), np.zeros((rows, 1, 27), np.int32)
    chars[:, 0, 6, 6] = ord("@")
    chars[1, 0, 6, 7] = ord(">")
    numbers[:, 0, status.X] = [10, 10, 11, 11, 12, 12, 13, 40]
    numbers[4:, 0, status.DUNGEON_LEVEL] = 1
    first = np.isin(np.arange(rows), [0, 6])[:, None]
    observation = {"window_chars": chars, "blstats": numbers}
    tiles, final = underfoot.track(observation, jnp.zeros((1, underfoot.MEMORY_SIZE)), first)
    # An episode, a step, east onto the stairs, a step there, another level, a step there, an episode, a run out of the window.
    assert tiles[:, 0].tolist() == [0, 0, ord(">"), ord(">"), 0, 0, 0, 0]
    memory = jnp.ones((1, underfoot.MEMORY_SIZE))
    for t in range(rows):
        row, new = jax.tree.map(lambda x, t=t: x[t : t + 1], (observation, first))
        tile, memory = underfoot.track(row, memory, new)
        assert tile[0, 0] == tiles[t, 0]
    np.testing.assert_array_equal(memory, final)
    network = agents.nethack_network(encoder="tiles_underfoot", **SMALL)
    assert network.state_size == 16 + underfoot.MEMORY_SIZE
    params, shown, apply = network.init(jax.random.key(0)), network_input(2), jax.jit(network.apply)
    *_, state = apply(params, shown, network.initial_state(2), np.ones((1, 2), bool))
    chex.assert_trees_all_equal(layout.from_torch(layout.to_torch(params), params), params)
    # It did not move.
    states = (state.at[:, -1].set(tile) for tile in (ord(">"), 0))
    on_stairs, off = (apply(params, shown, each, np.zeros((1, 2), bool))[0] for each in states)
    assert np.all(np.any(on_stairs != off, axis=-1))


def test_beginnings_of_messages_have_hashes_of_their_own() -> None:
    texts = b"You kill the newt!|You kill the jackal!|You miss the newt.|oYu kill the newt!|".split(b"|")
    rows = [np.frombuffer(text.ljust(256, b"\0"), np.uint8) for text in texts]
    hashes = tile_embedding.hash_beginnings(jnp.asarray(rows))
    # The first eight bytes of the first two are the same; each beginning has numbers of its own.
    assert hashes.tolist() == [
        [346, 1035, 2584, 3867],
        [346, 1349, 2980, 3238],
        [348, 1038, 2253, 3535],
        [483, 1172, 2721, 4004],
        [884, 1211, 2623, 3905],
    ]


def test_an_encoder_names_the_fields_that_an_environment_lacks() -> None:
    pictures = "window_chars, window_colors, blstats, message"
    for encoder, fields in (
        ("nethack", pictures),
        ("tiles_underfoot", pictures),
        ("film", "image, instruction"),
    ):
        lacking = f"config.network.encoder='{encoder}' needs the fields {fields}, which the environment does not show"
        with pytest.raises(UserError, match=f"^{lacking}: use 'auto' or 'flat'$"):
            agent.make_agent_network(GameNetwork(encoder=encoder), agents.FLAT_SPEC)


def test_a_network_reads_the_caption_of_a_gymnasium_task_only_when_asked() -> None:
    spec = registry.spec("gym:CartPole-v1", text="tests.gym_toys:praise")
    plain = registry.spec("gym:CartPole-v1")
    assert agent.make_agent_network(GameNetwork(), spec).fields == ("observation",)
    assert agent.make_agent_network(GameNetwork(), plain).fields == ("observation",)
    assert agent.make_agent_network(GameNetwork(read_text=True), spec).fields == ("caption", "observation")


def test_a_network_reads_texts_that_belong_to_the_observation() -> None:
    vault = registry.spec("gym:ToyVault-v0", modules="tests.gym_toys", text="obs:sound")
    assert "caption" in agent.make_agent_network(GameNetwork(), vault).fields
    doorkey = registry.spec("MiniGrid-DoorKey-5x5-v0")
    assert "text" in agent.make_agent_network(GameNetwork(), doorkey).fields
