"""The symbolic agent's encoder against plain numpy, and what its batch norms have seen."""

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
from motif_jax.nets import film
from motif_jax.nets.agent import make_agent_network
from motif_jax.nets.policy import tracked
from tests.plain_layers import convolution, gru, linear, lstm

pytestmark = pytest.mark.usefixtures("compiled_quickly")
LEVEL = "BabyAI-MixedTrainLocal-v0"
ROWS, WIDTH = 6, 4
EPSILON = 1e-5
relu = functools.partial(np.maximum, 0)
STATISTICS = ("mean", "variance", "count")


@functools.cache
def network(of_batch=False):
    settings = resources.config("train_agent", "symbolic").network
    settings.image_features = settings.message_features = settings.hidden_size = WIDTH
    settings.head_sizes = (3,)
    return make_agent_network(settings, registry.spec(LEVEL, fields=("instruction",)), of_batch)


def seen(count=ROWS, seed=0):
    """Views and instructions of so many games, [1, count, ...]."""
    env = registry.make(LEVEL, fields=("instruction",))
    rows = [empty_observation(env.spec) for _ in range(count)]
    for game, row in enumerate(rows):
        env.reset(seed + game, row)
    return {name: np.stack([row[name] for row in rows])[None] for name in film.FIELDS}


@functools.cache
def params():
    """Of unlike numbers everywhere, batch norms too."""
    rng, shapes = np.random.default_rng(0), jax.eval_shape(network().init, jax.random.key(0))

    def drawn(path, leaf):
        x = jnp.asarray(rng.standard_normal(leaf.shape) * 0.7, jnp.float32)
        return jnp.abs(x) + 0.5 if path[-1].key in ("variance", "scale") else x

    return jax.tree_util.tree_map_with_path(drawn, shapes)


def run(made, tree, observation):
    steps, count = observation[film.IMAGE].shape[:2]
    rows = {name: jnp.asarray(x) for name, x in observation.items()}
    return jax.jit(made.apply)(tree, rows, made.initial_state(count), jnp.ones((steps, count), bool))


def normed(x, layer):
    return (x - layer["mean"]) / np.sqrt(layer["variance"] + EPSILON) * layer["scale"] + layer["bias"]


def pooled(x):
    rows, height, width, channels = x.shape
    return x.reshape(rows, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def read(words, tree):
    state = np.zeros(WIDTH)
    for word in words[words > 0]:
        state = gru(np.asarray(tree["embedding"], np.float64)[word], state, tree["core"])
    return state


def by_hand(tree, observation):
    encoder, core = tree["actor"]["encoder"], tree["actor"]["core"]
    x = observation[film.IMAGE][0].astype(np.float64)
    instruction = np.stack([read(row, encoder["instruction"]) for row in observation[film.INSTRUCTION][0]])
    for n in "12":
        x = pooled(relu(normed(convolution(x, encoder[f"conv{n}"]), encoder[f"norm{n}"])))
    for name in ("film1", "film2"):
        y = relu(normed(convolution(x, encoder[f"{name}_conv1"]), encoder[f"{name}_norm1"]))
        y = convolution(y, encoder[f"{name}_conv2"])
        weight, bias = (linear(instruction, encoder[f"{name}_{part}"]) for part in ("weight", "bias"))
        y = y * weight[:, None, None] + bias[:, None, None]
        x = relu(normed(y, encoder[f"{name}_norm2"]))
    x = relu(pooled(x)).reshape(len(x), -1)
    x, _ = lstm(x, *np.zeros((2, len(x), WIDTH)), core)
    inside = {name: np.tanh(linear(x, tree[f"{name}_fc1"])) for name in ("policy", "value")}
    return linear(inside["policy"], tree["policy_head"]), linear(inside["value"], tree["value_head"])[:, 0]


@pytest.mark.slow
def test_it_is_what_plain_numpy_makes_of_it_whether_instructions_are_cropped_or_not():
    observation = seen()
    # Longer than what instructions are cropped to multiples of.
    observation[film.INSTRUCTION][0, 1, :9] = 1 + np.arange(9)
    less = network().cropped(observation)
    assert less[film.INSTRUCTION].shape[-1] == 16 < instructions.LENGTH
    wanted = by_hand(jax.device_get(params()), observation)
    for shown in (observation, less):
        for found, expected in zip(run(network(), params(), shown), wanted, strict=False):
            np.testing.assert_allclose(found[0], expected, rtol=1e-3, atol=1e-4)
    assert np.ptp(wanted[0], axis=0).min() > 1e-3


@pytest.mark.slow
def test_a_row_does_not_depend_on_those_beside_it_unless_as_published():
    # Of rows of several steps each step has statistics of its own.
    steps = {name: x.reshape(2, 3, *x.shape[2:]) for name, x in seen().items()}
    for made, equal in ((network(), True), (network(of_batch=True), False)):
        half = run(made, params(), jax.tree.map(lambda x: x[:1], steps))[0]
        both = run(made, params(), seen())[0][:, :3]
        assert np.allclose(both, half, rtol=1e-4, atol=1e-5) == equal
        np.testing.assert_allclose(run(made, params(), steps)[0][:1], half, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_first_look_takes_what_is_seen_and_later_ones_a_tenth():
    """Then a batch normalised by what was seen of it is one normalised by itself."""
    observation, others = (jax.tree.map(jnp.asarray, seen(seed=seed)) for seed in (0, 100))
    fresh = network().init(jax.random.key(0))
    track = jax.jit(functools.partial(tracked, network()))
    once = track(fresh, observation)
    published = run(network(of_batch=True), fresh, observation)[0]
    np.testing.assert_allclose(run(network(), once, observation)[0], published, rtol=1e-3, atol=1e-4)
    norm = once["actor"]["encoder"]["norm1"]
    assert norm["count"] == 1
    later = {"mean": norm["mean"] + 1.0, "variance": norm["variance"] * 2}
    moved = film.seen({**norm, "count": jnp.float32(50.0)}, later)
    np.testing.assert_allclose(moved["mean"], norm["mean"] + 0.1, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved["variance"], 1.1 * norm["variance"], rtol=1e-5)
    # Nothing else is touched, and devices with a part of the rows each agree on all of them.
    twice = track(once, others)
    parts = {name: jnp.stack(jnp.split(x, 2, axis=1)) for name, x in others.items()}
    split = jax.jit(jax.vmap(lambda rows: tracked(network(), once, rows, "d"), axis_name="d"))(parts)
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[0], split), twice, rtol=1e-4, atol=1e-5)
    before, after = (flatten_dict(tree) for tree in (once, twice))
    for path in (path for path in before if path[-1] not in STATISTICS):
        np.testing.assert_array_equal(after[path], before[path])


@pytest.mark.slow
def test_statistics_have_no_gradient():
    gradients = jax.jit(jax.grad(lambda tree: run(network(), tree, seen())[0].sum()))(params())
    assert not any(np.any(leaf) for path, leaf in flatten_dict(gradients).items() if path[-1] in STATISTICS)


def test_words_have_numbers_of_their_own():
    numbers = instructions.numbered("put the red ball next to a grey box")
    assert (len(set(numbers[:9].tolist()) - {0}), numbers[9:].any()) == (9, False)
    again = instructions.numbered("the Red zebra!")
    assert again[:3].tolist() == [*numbers[1:3], instructions.OTHER]
    with pytest.raises(ValueError, match="81 words"):
        instructions.numbered("go " * 81)
