"""A language model as a policy: its scores, value, heads, and what it refuses."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from tokenizers import Tokenizer, processors

from motif_jax import lm as language
from motif_jax.core import resources
from motif_jax.envs import registry
from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.spec import MASKED, ArraySpec, empty_observation
from motif_jax.glam import agent
from motif_jax.lm.scoring import candidate_scores
from motif_jax.rl import agent_networks
from motif_jax.rl.config import AgentConfig, agent_config
from tests.lm import talkers
from tests.sets import extra

LEVEL = "BabyAI-GoToLocal-v0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("talkers")
    return {name: talkers.write(root / name, name) for name in talkers.CONFIGS}


def settings(**changes) -> AgentConfig:
    config = resources.config("train_language_agent", "smoke")
    config.network.prompt_tokens = 160
    for key, value in changes.items():
        section = next(part for part in (config.network, config.lora, config.compat) if key in part)
        section[key] = value
    return agent_config(config)


def made(folder, **changes) -> agent.LanguageAgent:
    config = settings(model=str(folder), **changes)
    kind = agent_networks.class_of(config)
    return kind.make(config, registry.spec(LEVEL, **kind.environment_options(config)))


def prompts(folder):
    """Prompts of four steps, as the fields that the agent reads and as text."""
    config = settings(model=str(folder))
    options = agent_networks.class_of(config).environment_options(config)
    env = registry.make(LEVEL, fields=("prompt",), **{**options, "observations": 1})
    out = empty_observation(env.spec)
    env.reset(0, out)
    read = [name for name in ("tokens", "candidates", "candidate_starts") if name in out]
    steps = []
    texts = []
    for action in (0, 1, 2, 1):
        steps.append({name: out[name].copy() for name in read})
        texts.append(decoded(out["prompt"]))
        env.step(action, out)
    return {name: jnp.asarray(np.stack([step[name] for step in steps])) for name in read}, texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    [("t5", "scores"), ("gpt2", "actions"), extra("gpt2", "scores"), extra("t5", "actions")],
)
def test_logits_and_values_come_from_scores_or_heads(folders, name, policy):
    folder = folders[name]
    loaded = language.load(folders[name])
    one = made(folder, policy=policy)
    params = one.init(jax.random.key(1))
    fields, texts = prompts(folder)
    tokens = fields["tokens"]
    state = one.initial_state(2)
    # Time first.
    observation = {name: rows.reshape(2, 2, *rows.shape[1:]) for name, rows in fields.items()}
    logits, value, after = jax.jit(one.apply)(params, observation, state, jnp.zeros((2, 2), bool))
    assert (after.shape, value.shape, logits.shape) == (state.shape, (2, 2), (2, 2, 6))
    # The states from which the first token after each of the prompts is predicted.
    model = loaded.model
    valid = tokens >= 0
    states, prompt = jax.jit(model.prefill)(loaded.params, jnp.maximum(tokens, 0), valid)
    opening = states.after[jnp.arange(len(tokens)), valid.sum(1) - 1]
    if name == "t5":
        start = jnp.zeros((len(tokens), 1, 1), jnp.int32)
        states, _ = jax.jit(model.extend)(loaded.params, prompt, start, jnp.ones_like(start, bool))
        opening = states.after[:, 0, 0]
    first = partial(one.heads.apply, params["heads"], states=opening)
    scores = (
        first("actions")
        if policy == "actions"
        else loaded.score(texts, list(one.spec.action_names))
    )
    np.testing.assert_allclose(logits.reshape(4, -1), scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value.reshape(-1), first("value"), rtol=1e-4, atol=1e-5)
    empty_prompt = jnp.full((1, 160), -1)
    prompt_of_one_token = empty_prompt.at[0, 0].set(0)
    actions = {
        name: rows[:1] for name, rows in fields.items() if name in one.fields and name != "tokens"
    }
    logits_and_values = jax.jit(one.logits_and_values)
    of_empty = logits_and_values(params, empty_prompt, **actions)
    of_one_token = logits_and_values(params, prompt_of_one_token, **actions)
    for array, expected in zip(of_empty, of_one_token, strict=True):
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(array, expected)


@pytest.mark.slow
def test_a_fresh_model_may_keep_the_embeddings(folders):
    folder = folders["t5"]
    key = jax.random.key(5)
    loaded = language.load(folder).params
    fresh = made(folder, pretrained=False).init(key)["model"]
    half = made(folder, pretrained=False, keep_embedding=True).init(key)["model"]
    half, loaded, fresh = (flatten_dict(tree, sep="/") for tree in (half, loaded, fresh))
    assert {"embed" in name for name in half} == {True, False}
    for name, leaf in half.items():
        np.testing.assert_array_equal(leaf, (loaded if "embed" in name else fresh)[name])


def test_an_agent_has_the_published_parts_by_default(folders):
    one = made(folders["t5"], head_widths=(3, 4))
    assert (one.form, one.by_length, one.pad_plus_one) == ("log_probability", False, False)
    assert (str(one.source), one.keep_embedding, one.dropout) == (str(folders["t5"]), None, False)
    assert one.fields == ("tokens",)
    assert list(one.heads.configs) == ["value"]
    assert (one.heads.configs["value"].widths, one.heads.configs["value"].activation) == (
        (3, 4),
        "sigmoid",
    )
    assert one.initial_state(3).shape[0] == 3


@pytest.mark.parametrize(
    ("changes", "attribute", "value"),
    [
        ({"score": "scaled_probability"}, "form", "scaled_probability"),
        ({"glam_raw_logit_score": True}, "form", "raw_logit"),
        ({"by_length": True}, "by_length", True),
        ({"glam_pad_plus_one": True}, "pad_plus_one", True),
        ({"pretrained": False}, "source", None),
        # Only a fresh model leaves out as the published one.
        ({"glam_untrained_dropout": True}, "dropout", False),
        ({"glam_untrained_dropout": True, "pretrained": False}, "dropout", True),
    ],
    ids=str,
)
def test_a_switch_changes_the_part_that_it_names(folders, changes, attribute, value):
    assert getattr(made(folders["t5"], **changes), attribute) == value


def test_a_policy_of_actions_has_a_head_of_them(folders):
    one = made(folders["t5"], policy="actions", head_widths=(3, 4))
    assert one.heads.configs["actions"].outputs == 6


def test_dtype_and_recomputation_are_the_models(folders):
    one = made(folders["t5"], dtype="bfloat16", remat=True)
    assert (one.model.dtype, one.model.remat) == (jnp.bfloat16, True)


def test_low_rank_additions_are_what_is_drawn(folders):
    one = made(folders["t5"], patterns="*/query", rank=2, alpha=3.0)
    drawn = jax.eval_shape(one.init, jax.random.key(0))
    assert "additions" in drawn
    assert "model" not in drawn
    assert all(name.endswith("/query") for name in drawn["additions"])


@pytest.mark.slow
def test_the_published_scores_are_the_policys_logits(folders):
    one = made(folders["t5"], glam_raw_logit_score=True, glam_pad_plus_one=True)
    params = one.init(jax.random.key(1))
    tokens = prompts(folders["t5"])[0]["tokens"]
    logits, _ = jax.jit(one.logits_and_values)(params, tokens)
    valid = tokens >= 0
    words, present = (jnp.broadcast_to(part, (4, *part.shape)) for part in one.candidates)

    def by_hand(read):
        _, context = one.model.prefill(read, jnp.maximum(tokens, 0), valid)
        inputs = jnp.pad(words[..., :-1], ((0, 0), (0, 0), (1, 0)))  # the start token is 0
        states, _ = one.model.extend(read, context, inputs, jnp.ones(inputs.shape, bool))
        token_logits = one.model.logits(read, states.after)
        chosen = jnp.take_along_axis(token_logits, words[..., None], axis=-1)[..., 0]
        total = jax.nn.logsumexp(token_logits, axis=-1)
        return candidate_scores(chosen, total, present, "raw_logit", pad_plus_one=True)

    wanted = jax.jit(by_hand)(params["model"])
    assert not present.all()
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)


def test_end_tokens_stand_where_the_config_says(folders, tmp_path):
    folder = talkers.write(tmp_path / "ends")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = backend.token_to_id("</s>")
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", end)]
    )
    backend.save(str(folder / "tokenizer.json"))
    nowhere = {"special_tokens": "nowhere"}
    ends = []
    # The default, as released, the first release.
    for changes in ({}, nowhere, {**nowhere, "glam_end_token": True}):
        config = settings(model=str(folder), **changes)
        env = registry.make(LEVEL, **agent_networks.class_of(config).environment_options(config))
        out = empty_observation(env.spec)
        env.reset(0, out)
        row = out["tokens"][out["tokens"] >= 0]
        actions = zip(
            *agent_networks.class_of(config).make(config, env.spec).candidates, strict=True
        )
        ends.append((row[-1] == end, any(words[present][-1] == end for words, present in actions)))
    assert ends == [(True, False), (False, False), (True, True)]


@pytest.mark.parametrize("name", talkers.CONFIGS)
@pytest.mark.slow
def test_a_prompt_may_have_its_own_actions(folders, name):
    """Of two prompts with the actions in another order and one missing, the logits are the same in
    that order.
    """
    folder = folders[name]
    plain = made(folder, glam_separate_tokens=True)
    words, present = plain.candidates
    fields = {**plain.spec.observation, "candidates": ArraySpec(words.shape, "int32")}
    spec = dataclasses.replace(plain.spec, observation=fields)
    config = settings(model=str(folder), glam_separate_tokens=True)
    with_candidates = agent_networks.class_of(config).make(config, spec)
    assert with_candidates.fields == ("tokens", "candidates")
    tokens = prompts(folder)[0]["tokens"]
    order = np.array([[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]])
    candidates = np.where(present, words, -1)[order]
    candidates[1, 3] = -1
    params = plain.init(jax.random.key(1))
    rows = {"tokens": tokens[None, :2], "candidates": jnp.asarray(candidates)[None]}
    logits, value, _ = jax.jit(with_candidates.apply)(
        params, rows, with_candidates.initial_state(2), jnp.zeros((1, 2), bool)
    )
    wanted, values = jax.jit(plain.logits_and_values)(params, tokens[:2])
    expected = np.take_along_axis(np.asarray(wanted), order, axis=1)
    expected[1, 3] = MASKED
    np.testing.assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value[0], values, rtol=1e-4, atol=1e-5)


def test_prompts_are_cropped_to_few_lengths(folders):
    one = made(folders["t5"])
    for longest, wanted in ((0, 16), (3, 16), (16, 16), (17, 24), (100, 128), (150, 160)):
        tokens = np.full((2, 3, 160), -1, np.int32)
        tokens[1, 2, :longest] = 5
        assert one.cropped({"tokens": tokens})["tokens"].shape == (2, 3, wanted)


def test_prompts_and_value_share_a_dropout_key():
    """Runs go on with the masks that they would have had."""
    params = {"heads": {"value": {"output": {"bias": jnp.array([0.5])}}}}
    wanted = {(7, 2): [2209899741, 1947012083], (2, 7): [174673972, 388513098]}
    for last, data in wanted.items():
        key = agent.dropout_key(params, jnp.array([[3, -1], last]))
        assert jax.random.key_data(key).tolist() == data


@pytest.mark.slow
def test_untrained_models_leave_out_as_published(folders):
    folder = folders["t5"]
    one = made(folder, pretrained=False, keep_embedding=True, glam_untrained_dropout=True)
    params = one.init(jax.random.key(1))
    tokens = prompts(folder)[0]["tokens"]
    rows = jax.jit(one.logits_and_values)
    first, again, other = (
        rows(params, rows_shown)[0] for rows_shown in (tokens, tokens, tokens[::-1])
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other[::-1], atol=1e-4)
    assert not made(folder, glam_untrained_dropout=True).dropout
