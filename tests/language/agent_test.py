"""A language model as a policy: its scores, value, heads, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax import language
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.spec import empty_observation
from motif_jax.language import agent
from motif_jax.support import resources
from motif_jax.support.errors import UserError
from tests.language import talkers

LEVEL = "BabyAI-GoToLocal-v0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("talkers")
    return {name: talkers.write(root / name, name) for name in talkers.CONFIGS}


def network(**changes) -> ConfigDict:
    config = resources.config("train_language_agent", "smoke").network
    config.update({"prompt_tokens": 160, **changes})
    return config


def spec(folder, **options):
    return registry.spec(LEVEL, tokenizer=str(folder / "tokenizer.json"), prompt_tokens=160, **options)


def prompts(folder):
    """Prompts of four steps, as tokens and as text."""
    options = {"tokenizer": str(folder / "tokenizer.json"), "prompt_tokens": 160, "observations": 1}
    env = registry.make(LEVEL, fields=("prompt",), **options)
    out = empty_observation(env.spec)
    env.reset(0, out)
    tokens, texts = [], []
    for action in (0, 1, 2, 1):
        tokens.append(out["tokens"].copy())
        texts.append(decoded(out["prompt"]))
        env.step(action, out)
    return jnp.asarray(np.stack(tokens)), texts


@pytest.mark.parametrize("name", talkers.CONFIGS)
@pytest.mark.slow
def test_logits_are_the_scores_of_the_actions_and_values_come_from_the_first_state(folders, name):
    folder = folders[name]
    one = agent.make(network(model=str(folder)), spec(folder))
    params = one.init(jax.random.key(1))
    tokens, texts = prompts(folder)
    rows = jnp.asarray(tokens).reshape(2, 2, -1)  # time first
    state = one.initial_state(2)
    logits, value, after = jax.jit(one.apply)(params, {"tokens": rows}, state, jnp.zeros((2, 2), bool))
    assert after.shape == state.shape
    scored = language.load(folder).score(texts, list(one.spec.action_names))
    np.testing.assert_allclose(logits.reshape(4, -1), np.stack(scored), rtol=1e-4, atol=1e-5)
    assert value.shape == (2, 2)
    model = language.load(folder)
    valid = tokens >= 0
    states, prompt = model.model.prefill(model.params, np.maximum(tokens, 0), valid)
    if name == "t5":
        start = np.zeros((4, 1, 1), np.int32)
        first = model.model.extend(model.params, prompt, start, np.ones_like(start, bool))[0].after[:, 0, 0]
    else:
        first = states.after[np.arange(4), valid.sum(1) - 1]
    wanted = one.heads.apply(params["heads"], "value", first)
    np.testing.assert_allclose(value.reshape(-1), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", talkers.CONFIGS)
def test_a_head_can_be_the_policy(folders, name):
    folder = folders[name]
    one = agent.make(network(model=str(folder), policy="actions"), spec(folder))
    params = one.init(jax.random.key(1))
    tokens, _ = prompts(folder)
    logits, value = jax.jit(one.rows)(params, tokens)
    assert (logits.shape, value.shape) == ((4, 6), (4,))
    assert not np.allclose(logits[0], logits[1])
    by_score = agent.make(network(model=str(folder)), spec(folder))
    scored = by_score.rows({"model": params["model"], "heads": {"value": params["heads"]["value"]}}, tokens)
    np.testing.assert_allclose(value, scored[1], rtol=1e-4, atol=1e-5)


def test_a_fresh_model_may_keep_the_embeddings(folders):
    folder, key = folders["t5"], jax.random.key(5)
    kept = language.load(folder).params
    fresh = agent.make(network(model=str(folder), pretrained=False), spec(folder)).init(key)["model"]
    options = {"pretrained": False, "keep_embedding": True}
    half = agent.make(network(model=str(folder), **options), spec(folder)).init(key)["model"]
    same = {True: 0, False: 0}
    for path, leaf in jax.tree_util.tree_leaves_with_path(half):
        embedding = "embed" in jax.tree_util.keystr(path)
        np.testing.assert_array_equal(leaf, _at(kept if embedding else fresh, path))
        same[embedding] += 1
    assert min(same.values()) > 0


def _at(tree, path):
    for entry in path:
        tree = tree[entry.key]
    return tree


@pytest.mark.slow
def test_a_row_of_nothing_is_finite(folders):
    folder = folders["gpt2"]
    one = agent.make(network(model=str(folder)), spec(folder))
    params = one.init(jax.random.key(1))
    for tokens in (jnp.zeros((1, 160), jnp.int32), jnp.full((1, 160), -1)):
        logits, value = one.rows(params, tokens)
        assert np.isfinite(logits).all()
        assert np.isfinite(value).all()


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"model": ""}, {}, "network.model"),
        ({"policy": "vote"}, {}, "network.policy.*score, actions"),
        ({"head_widths": ()}, {}, "network.head_widths"),
        ({"prompt_tokens": 0}, {}, "network.prompt_tokens"),
        ({"dtype": "float16"}, {}, "network.dtype"),
        ({"prompt_tokens": 300}, {}, "network.prompt_tokens=300: the model has 256 positions"),
        ({}, {"actions": ("dance", "jump")}, "have the same tokens"),
    ],
)
def test_bad_configs_are_one_line(folders, changes, options, said):
    config = ConfigDict({"network": network(model=str(folders["gpt2"]))})
    config.network.update(changes)

    def try_it():
        agent.check(config)
        agent.make(config.network, spec(folders["gpt2"], **options))

    with pytest.raises(UserError, match=said) as caught:
        try_it()
    assert "\n" not in str(caught.value)


def test_an_environment_without_a_prompt_is_refused(folders):
    with pytest.raises(UserError, match="shows no tokens"):
        agent.make(network(model=str(folders["t5"])), registry.spec("Recall-v0"))


def test_a_prompt_that_is_too_long_is_told(folders):
    options = {"tokenizer": str(folders["t5"] / "tokenizer.json"), "prompt_tokens": 20}
    env = registry.make(LEVEL, **options)
    with pytest.raises(UserError, match="prompt_tokens=20: a prompt has"):
        env.reset(0, empty_observation(env.spec))
