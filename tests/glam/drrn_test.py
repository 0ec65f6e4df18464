"""DRRN: its Q against plain numpy, its memory, its step of learning."""

from __future__ import annotations

import functools
import re
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.core import resources
from motif_jax.core.training import schedules
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.spec import empty_observation
from motif_jax.glam import drrn, drrn_update, replay_memory
from motif_jax.rl import agent_networks
from motif_jax.rl.algorithms import trajectory
from motif_jax.rl.config import agent_config
from motif_jax.rl.settings import algorithm_class
from tests.agents import random_batch
from tests.lm import talkers
from tests.plain_layers import gru, linear

LEVEL = "BabyAI-GoToLocal-v0"
STEPS = 4
ROLLOUTS = 6
LENGTH = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return talkers.write(tmp_path_factory.mktemp("drrn") / "model")


def config(folder, **changes):
    values = resources.config("train_language_agent", "drrn")
    values.environment.name = LEVEL
    values.network.tokenizer = str(folder)
    values.network.embedding = values.network.hidden_size = 4
    values.network.prompt_tokens = LENGTH
    values.batch_size = STEPS * ROLLOUTS
    values.rollout = STEPS
    values.algorithm.replay_steps = 3 * STEPS * ROLLOUTS
    values.algorithm.replay_draw = 16
    values.optimizer.learning_rate = 1e-2
    values.update_from_flattened_dict(changes)
    return agent_config(values)


@functools.cache
def agent(folder):
    settings = config(folder)
    kind = agent_networks.class_of(settings)
    return kind.make(settings, registry.spec(LEVEL, **kind.environment_options(settings)))


def read(tokens, table, layer):
    state = np.zeros(table.shape[1])
    for token in tokens:
        state = gru(table[token], state, layer)
    return state


def by_hand(network, params, prompts):
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    prompt_states = [
        read(prompt[prompt >= 0], params["embedding"], params["prompt"]) for prompt in prompts
    ]
    actions = zip(*network.candidates, strict=True)
    action_states = [
        read(words[present], params["embedding"], params["action"]) for words, present in actions
    ]
    both = np.array(
        [[np.concatenate([one, other]) for other in action_states] for one in prompt_states]
    )
    return linear(np.maximum(linear(both, params["hidden"]), 0), params["q"])[..., 0]


def prompts(count, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(talkers.WORDS), (count, LENGTH), np.int32)
    return np.where(np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (count, 1)), rows, -1)


def batch(network, seed=0):
    rollouts = random_batch(network.spec, 0, STEPS, ROLLOUTS, seed)
    tokens = prompts((STEPS + 1) * ROLLOUTS, seed).reshape(STEPS + 1, ROLLOUTS, LENGTH)
    shown = {"tokens": tokens, "text_count": np.ones((STEPS + 1, ROLLOUTS), np.int32)}
    return jax.tree.map(
        jnp.asarray, rollouts._replace(observation=shown, reward=rollouts.reward * 0.1)
    )


def start(folder, **changes):
    settings = config(folder, **changes)
    network = agent(folder)
    optimizer = schedules.make_optimizer(settings.optimizer)
    algorithm = drrn_update.DrrnAlgorithm(settings, network, optimizer)
    return settings, algorithm.init(jax.random.key(0)), algorithm.update


def test_a_tokenizer_of_the_hubs_cache_is_read(folder, tmp_path):
    """There the files of a model are links to files of other names, elsewhere."""
    (tmp_path / "snapshot").mkdir()
    shutil.copyfile(folder / "tokenizer.json", tmp_path / "0123abcd")
    (tmp_path / "snapshot" / "tokenizer.json").symlink_to("../0123abcd")
    settings = config(tmp_path / "snapshot")
    spec = registry.spec(LEVEL, **agent_networks.class_of(settings).environment_options(settings))
    assert drrn.make(settings.network, spec).module == agent(folder).module


def test_what_is_stored_comes_back(folder):
    network = agent(folder)
    rows = jnp.asarray(prompts(5))
    cut = jnp.where(jnp.arange(LENGTH) < 7, rows, -1)
    for tokens, expected in ((rows, rows), (cut[:, :8], cut)):
        stored = network.stored({"tokens": tokens})
        assert stored.dtype == jnp.uint16
        np.testing.assert_array_equal(network.shown(stored), expected)


@pytest.mark.parametrize(
    ("longest", "lengths"), [(20, [20]), (64, [64]), (65, [33, 65]), (201, [51, 101, 201])]
)
def test_prompts_are_cut_to_lengths_that_halve_down_to_64(longest, lengths):
    assert drrn_update.prompt_lengths(longest) == lengths


@pytest.mark.slow
def test_an_update_remembers_and_takes_the_step_of_the_loss(folder):
    """The first draw of as many steps is all that was played; its targets are by numpy."""
    settings, state, update = start(folder, **{"algorithm.replay_draw": STEPS * ROLLOUTS})
    network = agent(folder)
    rollouts = batch(agent(folder))
    new, metrics = jax.jit(update)(state, rollouts)
    assert algorithm_class(settings) is drrn_update.DrrnAlgorithm
    assert int(new.memory.added) == ROLLOUTS
    reward = 20 * np.maximum(np.asarray(rollouts.reward), 0)
    done = np.asarray(trajectory.done(rollouts))
    valid = np.asarray(trajectory.recorded(rollouts))
    assert int(new.env_steps[1]) == valid.sum() < STEPS * ROLLOUTS
    assert np.asarray(rollouts.truncated).any()
    # A value continues in the row behind a step that was cut, which is no step.
    assert not done[np.asarray(rollouts.truncated)].any()
    tokens = rollouts.observation["tokens"].reshape(-1, LENGTH)
    values = by_hand(network, state.params, np.asarray(tokens)).reshape(STEPS + 1, ROLLOUTS, -1)
    targets = reward + settings.algorithm.gamma * np.where(done, 0, values[1:].max(axis=-1))

    def loss(params):
        values = network.values(params, tokens).reshape(STEPS + 1, ROLLOUTS, -1)[:-1]
        chosen = jnp.take_along_axis(values, rollouts.action[..., None], axis=-1)[..., 0]
        return jnp.mean(optax.huber_loss(chosen, targets), where=valid)

    wanted, gradient = jax.jit(jax.value_and_grad(loss))(state.params)
    assert metrics["loss/total"] == pytest.approx(float(wanted), rel=1e-4)
    assert metrics["value/target_mean"] == pytest.approx(targets[valid].mean(), rel=1e-4)
    assert loss(new.params) < wanted
    norm = optax.tree.norm(gradient)
    assert metrics["optimizer/gradient_norm"] == pytest.approx(float(norm), rel=1e-4)


@pytest.mark.extra
def test_devices_remember_all_and_take_one_step(folder):
    _, state, update = start(folder)
    rollouts = batch(agent(folder))
    one, metrics = jax.jit(update)(state, rollouts)
    halves = jax.tree.map(
        lambda x: jnp.stack(jnp.split(x, 2, axis=1)), rollouts._replace(initial_state=())
    )
    halves = halves._replace(initial_state=rollouts.initial_state.reshape(2, ROLLOUTS // 2, 0))
    both = jax.jit(
        jax.vmap(lambda s, b: update(s, b, axis_name="d"), in_axes=(None, 0), axis_name="d")
    )
    two, other = both(state, halves)
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], two.params) for i in range(2))
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_close(first, one.params, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(two.memory.observation[0], one.memory.observation)
    np.testing.assert_allclose(other["loss/total"][0], metrics["loss/total"], rtol=1e-4)


@pytest.mark.slow
def test_the_oldest_make_room():
    memory = replay_memory.empty(4, 3, jax.ShapeDtypeStruct((2,), jnp.uint16))
    for first, steps in ((0, 9), (3, 12)):
        rows = jnp.broadcast_to(jnp.arange(first, first + 3)[:, None], (3, 3))
        shown = jnp.broadcast_to(rows[:, :1, None], (3, 4, 2)).astype(jnp.uint16)
        more = replay_memory.ReplayMemory(
            shown, rows, rows * 1.0, rows < 0, rows >= 0, jnp.int32(0)
        )
        memory = replay_memory.add(memory, more)
        assert replay_memory.steps_in(memory) == steps
    steps = replay_memory.draw(jax.random.key(0), memory, 12)
    assert sorted(steps.action.tolist()) == sorted([2, 3, 4, 5] * 3)
    np.testing.assert_array_equal(steps.observation[:, 0], steps.action)


def test_draws_are_of_different_numbers_each_as_likely():
    keys = jax.random.split(jax.random.key(0), 3000)
    numbers = np.asarray(
        jax.jit(jax.vmap(lambda key: replay_memory.distinct(key, jnp.int32(7), 3)))(keys)
    )
    assert all(len(set(row)) == 3 for row in numbers.tolist())
    assert (numbers.min(), numbers.max()) == (0, 6)
    shares = np.bincount(numbers.reshape(-1), minlength=7) / len(keys)
    np.testing.assert_allclose(shares, 3 / 7, atol=0.05)


def test_published_prompts_lack_the_first_observation():
    texts = []
    for quirk in (False, True):
        env = registry.make(LEVEL, fields=("prompt",), compat={"drrn_first_observation": quirk})
        out = empty_observation(env.spec)
        for play in (functools.partial(env.reset, 3), functools.partial(env.step, 0)):
            play(out)
            texts.append(decoded(out["prompt"]))
    assert [re.findall(r"Observation (\d)", text) for text in texts] == [
        ["0"],
        ["0", "1"],
        [],
        ["0"],
    ]
    assert texts[0].startswith(texts[2])
    assert texts[3].endswith("Action 0: turn left")
