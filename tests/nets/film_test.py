"""The symbolic agent's encoder against plain numpy, and the statistics of its batch norms."""

from __future__ import annotations

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from motif_jax.core import resources
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import instructions
from motif_jax.envs.spec import empty_observation
from motif_jax.nets import film, running_statistics
from motif_jax.nets.agent import make_agent_network
from motif_jax.nets.policy import with_input_statistics
from tests.plain_layers import convolution, gru, linear, lstm

LEVEL = "BabyAI-MixedTrainLocal-v0"
ROWS = 6
WIDTH = 4
EPSILON = 1e-5
relu = functools.partial(np.maximum, 0)
STATISTICS = ("mean", "variance", "count")


@functools.cache
def network(of_batch=False):
    settings = resources.config("train_agent", "symbolic").network
    settings.image_features = settings.message_features = settings.hidden_size = WIDTH
    settings.head_sizes = (3,)
    return make_agent_network(settings, registry.spec(LEVEL, fields=("instruction",)), of_batch)


def first_observations(count=ROWS, seed=0):
    """Views and instructions at the start of so many games, [1, count, ...]."""
    env = registry.make(LEVEL, fields=("instruction",))
    rows = [empty_observation(env.spec) for _ in range(count)]
    for game, row in enumerate(rows):
        env.reset(seed + game, row)
    return {name: np.stack([row[name] for row in rows])[None] for name in film.FIELDS}


@functools.cache
def params():
    """Random numbers everywhere, in batch norms too."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(network().init, jax.random.key(0))

    def draw(path, leaf):
        x = jnp.asarray(rng.standard_normal(leaf.shape) * 0.7, jnp.float32)
        return jnp.abs(x) + 0.5 if path[-1].key in ("variance", "scale") else x

    return jax.tree_util.tree_map_with_path(draw, shapes)


def logits_and_values(agent_network, tree, observation):
    """Of rows [T, B, ...], each the first of an episode."""
    steps, count = observation[film.IMAGE].shape[:2]
    rows = {name: jnp.asarray(x) for name, x in observation.items()}
    first = jnp.ones((steps, count), bool)
    logits, values, _ = jax.jit(agent_network.apply)(
        tree, rows, agent_network.initial_state(count), first
    )
    return logits, values


def normed(x, layer):
    unscaled = (x - layer["mean"]) / np.sqrt(layer["variance"] + EPSILON)
    return unscaled * layer["scale"] + layer["bias"]


def pooled(x):
    rows, height, width, channels = x.shape
    return x.reshape(rows, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def encode_words(words, tree):
    state = np.zeros(WIDTH)
    for word in words[words > 0]:
        state = gru(np.asarray(tree["embedding"], np.float64)[word], state, tree["core"])
    return state


def plain_logits_and_values(tree, observation):
    """What the network computes, in numpy."""
    encoder = tree["actor"]["encoder"]
    x = observation[film.IMAGE][0].astype(np.float64)
    words = observation[film.INSTRUCTION][0]
    instruction = np.stack([encode_words(row, encoder["instruction"]) for row in words])
    for number in (1, 2):
        x = normed(convolution(x, encoder[f"conv{number}"]), encoder[f"norm{number}"])
        x = pooled(relu(x))
    for name in ("film1", "film2"):
        x = relu(normed(convolution(x, encoder[f"{name}_conv1"]), encoder[f"{name}_norm1"]))
        x = convolution(x, encoder[f"{name}_conv2"])
        weight = linear(instruction, encoder[f"{name}_weight"])[:, None, None]
        bias = linear(instruction, encoder[f"{name}_bias"])[:, None, None]
        x = relu(normed(x * weight + bias, encoder[f"{name}_norm2"]))
    x = relu(pooled(x)).reshape(len(x), -1)
    x, _ = lstm(x, *np.zeros((2, len(x), WIDTH)), tree["actor"]["core"])

    logits = linear(np.tanh(linear(x, tree["policy_fc1"])), tree["policy_head"])
    values = linear(np.tanh(linear(x, tree["value_fc1"])), tree["value_head"])[:, 0]
    return logits, values


@pytest.mark.slow
@pytest.mark.parametrize("crops", [False, True])
def test_the_network_computes_what_numpy_does(crops):
    observation = first_observations()
    # Longer than the eight words that instructions are cropped to multiples of.
    observation[film.INSTRUCTION][0, 1, :9] = 1 + np.arange(9)
    expected_logits, expected_values = plain_logits_and_values(
        jax.device_get(params()), observation
    )
    if crops:
        observation = network().cropped(observation)
        assert observation[film.INSTRUCTION].shape[-1] == 16 < instructions.LENGTH

    logits, values = logits_and_values(network(), params(), observation)

    np.testing.assert_allclose(logits[0], expected_logits, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(values[0], expected_values, rtol=1e-3, atol=1e-4)
    # Games differ: the comparison is not one of constants.
    assert np.ptp(expected_logits, axis=0).min() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("of_batch", [False, True])
def test_rows_of_a_step_share_statistics_only_as_published(of_batch):
    observation = first_observations()
    two_steps = {name: x.reshape(2, 3, *x.shape[2:]) for name, x in observation.items()}
    first_step = {name: x[:1] for name, x in two_steps.items()}
    agent_network = network(of_batch=of_batch)

    alone, _ = logits_and_values(agent_network, params(), first_step)
    among_more_rows, _ = logits_and_values(agent_network, params(), observation)
    among_steps, _ = logits_and_values(agent_network, params(), two_steps)

    assert np.allclose(among_more_rows[:, :3], alone, rtol=1e-4, atol=1e-5) == (not of_batch)
    # Each step has statistics of its own.
    np.testing.assert_allclose(among_steps[:1], alone, rtol=1e-4, atol=1e-5)


def device_observations(seed=0):
    return jax.tree.map(jnp.asarray, first_observations(seed=seed))


@functools.cache
def fresh_params():
    return network().init(jax.random.key(0))


@jax.jit
def tracked(tree, rows):
    return with_input_statistics(network(), tree, rows)


@functools.cache
def once_tracked_params():
    """Fresh parameters whose statistics are those of one batch."""
    return tracked(fresh_params(), device_observations())


@pytest.mark.slow
def test_the_first_statistics_normalise_their_batch_as_published():
    logits, _ = logits_and_values(network(), once_tracked_params(), device_observations())

    published_logits, _ = logits_and_values(
        network(of_batch=True), fresh_params(), device_observations()
    )
    np.testing.assert_allclose(logits, published_logits, rtol=1e-3, atol=1e-4)
    assert once_tracked_params()["actor"]["encoder"]["norm1"]["count"] == 1


def test_later_statistics_move_by_a_tenth():
    norm = {
        "mean": jnp.array([1.0, -2.0]),
        "variance": jnp.array([0.5, 2.0]),
        "count": jnp.float32(50.0),
    }
    statistics = {"mean": norm["mean"] + 1.0, "variance": norm["variance"] * 2}

    moved = running_statistics.with_statistics(norm, statistics)

    np.testing.assert_allclose(moved["mean"], norm["mean"] + 0.1, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved["variance"], 1.1 * norm["variance"], rtol=1e-5)


@pytest.mark.slow
def test_tracking_changes_statistics_alone():
    before = flatten_dict(once_tracked_params())

    after = flatten_dict(tracked(once_tracked_params(), device_observations(seed=100)))

    for path in before:
        if path[-1] not in STATISTICS:
            np.testing.assert_array_equal(after[path], before[path])


@pytest.mark.extra
def test_devices_with_parts_of_rows_agree_on_all_statistics():
    rows = device_observations(seed=100)
    expected = tracked(once_tracked_params(), rows)
    parts = {name: jnp.stack(jnp.split(x, 2, axis=1)) for name, x in rows.items()}

    def track_part(part):
        return with_input_statistics(network(), once_tracked_params(), part, "device")

    of_devices = jax.jit(jax.vmap(track_part, axis_name="device"))(parts)

    of_first_device = jax.tree.map(lambda x: x[0], of_devices)
    chex.assert_trees_all_close(of_first_device, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_statistics_have_no_gradient():
    def logit_sum(tree):
        logits, _ = logits_and_values(network(), tree, first_observations())
        return logits.sum()

    gradients = flatten_dict(jax.jit(jax.grad(logit_sum))(params()))

    assert not any(np.any(leaf) for path, leaf in gradients.items() if path[-1] in STATISTICS)


def test_words_have_numbers_of_their_own():
    numbers = instructions.numbered("put the red ball next to a grey box")

    assert len(set(numbers[:9].tolist()) - {0}) == 9
    assert not numbers[9:].any()


def test_case_does_not_count_and_unknown_words_share_a_number():
    numbers = instructions.numbered("put the red ball next to a grey box")

    assert instructions.numbered("the Red zebra!")[:3].tolist() == [
        *numbers[1:3],
        instructions.OTHER,
    ]


def test_an_instruction_of_too_many_words_is_refused():
    with pytest.raises(ValueError, match="81 words"):
        instructions.numbered("go " * 81)
