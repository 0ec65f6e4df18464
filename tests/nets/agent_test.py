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
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.nets import agent, layout, tile_embedding
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.nets.config import GameNetwork
from tests import agents
from tests.golden_numbers import GRADIENT, Closeness, assert_golden, recipe_params
from tests.nets.film_test import network as make_symbolic

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
    return agents.observation_of(
        *(numbers[prefix + key] for key in ("image", "blstats_features", "message"))
    )


def features_of(
    network: agent.AgentNetwork, params: Any, observation: dict[str, Any]
) -> np.ndarray:
    encode = functools.partial(
        network.module.apply, method=lambda module, x: module.actor.encoder(x)
    )
    return np.asarray(jax.jit(encode)({"params": params}, observation))


@pytest.mark.slow
@pytest.mark.parametrize("prepares", [False, True])
def test_one_step_equals_golden_with_bare_and_prepared_parameters(
    golden: Any, prepares: bool
) -> None:
    numbers = golden("actor_critic_step.npz")
    network = agents.nethack_network(first_convolution="table")
    params = recipe_params(network, golden("weight_shapes.json")["actor_critic"])
    rows = {name: x[None] for name, x in golden_observation(numbers).items()}
    if prepares:
        params = jax.jit(network.prepare)(params)
        # These look the first convolution up; bare ones draw so few pictures.
        assert jax.tree.leaves(params.tables)

    logits, value, state = jax.jit(network.apply)(
        params, rows, numbers["state_in"], np.zeros((1, 8), bool)
    )

    np.testing.assert_allclose(logits[0], numbers["logits"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(value[0], numbers["value"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(state, numbers["state_out"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_encoder_equals_golden(golden: Any) -> None:
    numbers = golden("actor_critic_step.npz")
    network = agents.nethack_network(first_convolution="table")
    params = recipe_params(network, golden("weight_shapes.json")["actor_critic"])

    features = features_of(network, params, golden_observation(numbers))

    np.testing.assert_allclose(features, numbers["encoder_output"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_network_that_draws_pictures_prepares_no_table() -> None:
    network = agents.nethack_network(first_convolution="picture", **SMALL)

    prepared = jax.jit(network.prepare)(agents.random_params(network))

    assert not jax.tree.leaves(prepared.tables)


@pytest.mark.parametrize("name", ["lstm", "no_rnn", *LARGE])
def test_variants_equal_golden_and_reset_between_episodes(golden: Any, name: str) -> None:
    numbers = golden("core_variants.npz")
    network = agents.nethack_network(**VARIANTS[name])
    params = recipe_params(network, golden("core_variants_shapes.json")[name])
    if name == "resnet_impala_reduced":
        for key, layer in params["actor"]["encoder"]["image"].items():
            layer["kernel"] *= 0.5 if "stage" in key else 1.0
    # Without memory the published state has one number, which is not used, and ours none.
    step_state = numbers["state_in_1024"][:, : network.state_size]
    sequence_state = numbers["sequence_state_in_1024"][:, : network.state_size]
    # The residual network's recipe weights grow activations to 100 and more.
    large = name == "resnet_impala"
    feature_tolerance = 3e-4 if large else 1e-5
    tolerance = 1e-4 if large else 1e-5
    # Measured with the residual network: 8.4e-6, 5.4e-5 and 1.0e-3.
    gradient_closeness = Closeness(norm=3e-5, entry=2e-4, total=3e-3) if large else GRADIENT

    observation = golden_observation(numbers, "step/")
    features = features_of(network, params, observation)
    np.testing.assert_allclose(
        features,
        numbers[f"{name}/step/encoder_output"],
        rtol=feature_tolerance,
        atol=feature_tolerance,
    )

    rows = {field: x[None] for field, x in observation.items()}

    def loss(params: Any) -> tuple[jax.Array, Any]:
        logits, value, state = network.apply(params, rows, step_state, jnp.zeros((1, 4), bool))
        return jnp.mean(value**2) + jnp.mean(logits**2), (logits[0], value[0], state)

    (total, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    logits, value, state = outputs
    expected_state = numbers[f"{name}/step/state_out"][:, : network.state_size]
    for output, expected in (
        (logits, numbers[f"{name}/step/logits"]),
        (value, numbers[f"{name}/step/value"]),
        (state, expected_state),
    ):
        np.testing.assert_allclose(output, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(total, numbers[f"{name}/step/loss"], rtol=tolerance)
    assert_golden(layout.to_torch(gradient), numbers, f"{name}/step/gradient", gradient_closeness)

    sequences = jax.tree.map(agents.time_major, golden_observation(numbers, "sequence/"))
    first = np.pad(agents.time_major(numbers["sequence/dones"]) > 0, ((1, 0), (0, 0)))[:-1]
    logits, value, final = jax.jit(network.apply)(params, sequences, sequence_state, first)
    outputs = {
        "logits": agents.time_major(logits),
        "value": agents.time_major(value),
        "final_state": final,
    }
    for key, output in outputs.items():
        expected = numbers[f"{name}/sequence/{key}"]
        if key == "final_state":
            expected = expected[:, : network.state_size]
        np.testing.assert_allclose(output, expected, rtol=tolerance, atol=tolerance)


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
            if matrix.shape[0] > matrix.shape[1]:
                matrix = matrix.T
            np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-5)


def fresh(network: Any, seed: int = 0) -> dict[str, np.ndarray]:
    return layout.to_torch(jax.jit(network.init)(jax.random.key(seed)))


TINY = {
    "hidden_size": 5,
    "image_features": 4,
    "vector_features": 3,
    "message_features": 2,
    "core_layers": 2,
}


@pytest.mark.extra
def test_fresh_parameters_follow_their_key() -> None:
    network = agents.nethack_network(
        encoder="tiles_underfoot", core="lstm", separate_critic=True, **TINY
    )
    one = fresh(network)
    same = fresh(network)
    other = fresh(network, seed=1)
    for name, tensor in one.items():
        np.testing.assert_array_equal(tensor, same[name])
    assert any(not np.array_equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.slow
def test_an_lstm_starts_as_pytorchs() -> None:
    tensors = fresh(agents.nethack_network(core="lstm", **TINY))

    core_tensors = [tensor for name, tensor in tensors.items() if name.startswith("lstm")]
    assert core_tensors
    for tensor in core_tensors:
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


@pytest.fixture(scope="module")
def two_trunk_params() -> Any:
    network = agents.nethack_network(separate_critic=True, hidden_size=8, core_layers=2)
    return agents.random_params(network, 1)


def test_parameters_survive_the_way_to_pytorchs_layout_and_back(two_trunk_params: Any) -> None:
    tensors = layout.to_torch(two_trunk_params)

    assert {"actor/gru2_input/weight", "critic/image_fc/bias"} <= set(tensors)
    chex.assert_trees_all_equal(layout.from_torch(tensors, two_trunk_params), two_trunk_params)


def test_a_tensor_of_another_shape_is_refused_by_name(two_trunk_params: Any) -> None:
    tensors = layout.to_torch(two_trunk_params) | {"value_head/bias": np.zeros(2)}

    error = r"^tensor value_head/bias has shape \(2,\), which does not fit \(1,\)$"
    with pytest.raises(ValueError, match=error):
        layout.from_torch(tensors, two_trunk_params)


def test_missing_and_unexpected_tensors_are_refused_by_name(two_trunk_params: Any) -> None:
    tensors = layout.to_torch(two_trunk_params) | {"x": np.zeros(1)}
    del tensors["value_head/bias"]

    error = r"^tensors do not fit the network: missing \['value_head/bias'\], unexpected \['x'\]$"
    with pytest.raises(ValueError, match=error):
        layout.from_torch(tensors, two_trunk_params)


@pytest.mark.slow
def test_separate_actor_and_critic_share_neither_state_nor_parameters() -> None:
    network = agents.flat_network(separate_critic=True)
    params = agents.random_params(network)
    observation = {"signal": np.ones((1, 2, 5), np.float32), "clock": np.ones((1, 2), np.int32)}

    @jax.jit
    def run(params: Any, state: Any) -> Any:
        return network.apply(params, observation, state, np.zeros((1, 2), bool))

    state = network.initial_state(2)
    logits, values, _ = run(params, state)
    # The first half is the actor's.
    other_logits, same_values, _ = run(params, state.at[:, :16].set(0.5))
    np.testing.assert_array_equal(values, same_values)
    assert np.all(logits != other_logits)

    def value_sum(params: Any) -> jax.Array:
        _, values, _ = run(params, state)
        return values.sum()

    gradient = jax.grad(value_sum)(params)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient["actor"]))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient["critic"]["encoder"]))


@pytest.mark.slow
def test_a_layers_tables_keep_their_names_in_pytorchs_layout() -> None:
    network = agents.nethack_network(encoder="tiles_underfoot", **SMALL)
    params = network.init(jax.random.key(0))

    tensors = layout.to_torch(params)

    chex.assert_trees_all_equal(layout.from_torch(tensors, params), params)


def test_message_prefixes_have_hashes_of_their_own() -> None:
    texts = b"You kill the newt!|You kill the jackal!|You miss the newt.|oYu kill the newt!|".split(
        b"|"
    )
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


def test_a_network_reads_a_gymnasium_tasks_caption_only_when_asked() -> None:
    spec = registry.spec("gym:CartPole-v1", text="tests.gym_toys:praise")
    plain = registry.spec("gym:CartPole-v1")
    assert agent.make_agent_network(GameNetwork(), spec).fields == ("observation",)
    assert agent.make_agent_network(GameNetwork(), plain).fields == ("observation",)
    assert agent.make_agent_network(GameNetwork(read_text=True), spec).fields == (
        "caption",
        "observation",
    )


def test_an_observation_with_nothing_to_read_is_refused() -> None:
    text = ArraySpec((8,), "uint8")
    spec = EnvironmentSpec({"caption": text}, 2, text_field="caption", observed_text=False)
    for bare, remedy in (
        (EnvironmentSpec({}, 2), ""),
        (spec, ": --config.network.read_text=True reads the text"),
    ):
        with pytest.raises(UserError) as error:
            agent.make_agent_network(GameNetwork(), bare)
        assert str(error.value) == (
            f"config.environment.name: its observation has nothing that the network reads{remedy}"
        )


def test_a_field_of_no_numbers_is_not_read() -> None:
    empty = ArraySpec((0,), "float32")
    number = ArraySpec((2,), "float32")
    settings = GameNetwork(observation_normalisation="running")
    network = agent.make_agent_network(
        settings, EnvironmentSpec({"empty": empty, "number": number}, 2)
    )
    assert network.fields == ("number",)
    with pytest.raises(UserError, match="nothing that the network reads"):
        agent.make_agent_network(settings, EnvironmentSpec({"empty": empty}, 2))


def test_a_network_reads_texts_that_belong_to_the_observation() -> None:
    vault = registry.spec("gym:ToyVault-v0", modules="tests.gym_toys", text="obs:sound")
    assert "caption" in agent.make_agent_network(GameNetwork(), vault).fields
    doorkey = registry.spec("MiniGrid-DoorKey-5x5-v0")
    assert "text" in agent.make_agent_network(GameNetwork(), doorkey).fields
