"""Texts token by token, recomputation, dropout, and fresh parameters of language models."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from motif_jax.lm import scoring
from motif_jax.lm.config import Dropout
from motif_jax.lm.model import LanguageModel
from tests.lm import recipes
from tests.sets import extra

pytestmark = pytest.mark.slow
TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_log_probabilities_and_entropies_are_those_of_the_logits(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    text = TOKENS[:, 1:4]
    valid = jnp.ones((recipes.BATCH, 3), bool)
    look = jax.jit(functools.partial(scoring.token_log_probs, model, chunk=4))

    log_probs, entropies = look(params, TOKENS, VALID, text, valid)

    def text_logits(params: Any) -> jax.Array:
        if name == "llama":
            # A decoder alone does not predict its first token.
            states, _ = model.prefill(params, text, valid)
            return model.logits(params, states.after[:, :-1])
        # The start token is 0.
        inputs = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))[:, None]
        _, prompt = model.prefill(params, TOKENS, VALID)
        states, _ = model.extend(params, prompt, inputs, inputs >= 0)
        return model.logits(params, states.after[:, 0])

    logs = np.asarray(jax.nn.log_softmax(jax.jit(text_logits)(params)))
    start = text.shape[1] - logs.shape[1]
    expected = np.take_along_axis(logs, np.asarray(text)[:, start:, None], axis=-1)[..., 0]
    np.testing.assert_allclose(log_probs[:, start:], expected, rtol=1e-4, atol=1e-5)
    expected_entropies = -(np.exp(logs) * logs).sum(axis=-1)
    np.testing.assert_allclose(entropies[:, start:], expected_entropies, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "limit"),
    [({"remat": True}, 1e-5), ({"dtype": jnp.bfloat16}, 5e-2)],
    ids=["remat", "bfloat16"],
)
def test_recomputation_and_bfloat16_keep_the_gradient(
    loaded: Any, options: dict[str, Any], limit: float
) -> None:
    model, params = loaded("llama")

    def gradient_of(model: LanguageModel) -> Any:
        def loss(params: Any) -> jax.Array:
            states, _ = model.prefill(params, TOKENS, VALID)
            return jnp.square(model.logits(params, states.after)).mean()

        return jax.jit(jax.grad(loss))(params)

    gradient = gradient_of(LanguageModel(model.config, **options))

    expected = gradient_of(model)
    chex.assert_type(jax.tree.leaves(gradient), jnp.float32)
    assert optax.tree.norm(optax.tree.sub(gradient, expected)) <= limit * optax.tree.norm(expected)


def model_of_embeddings(model: LanguageModel) -> LanguageModel:
    """A model without layers: what dropout leaves out of its embeddings is 0 in its states."""
    return LanguageModel(
        dataclasses.replace(model.config, layers=0, dropout=Dropout(embeddings=0.3))
    )


def dropped_in_turns(model: LanguageModel, params: Any, seed: int) -> np.ndarray:
    """What dropout leaves out of a prompt and of two turns of its continuation, bool [3, B, D]."""
    word = TOKENS[:, None, :1]

    @jax.jit
    def run(key: jax.Array) -> list[jax.Array]:
        training_model = model.with_dropout(key)
        valid = jnp.ones(word.shape, bool)
        prompt_states, prompt = training_model.prefill(params, TOKENS[:, :1], valid[:, 0])
        start = model.start(recipes.BATCH, 1, 2)
        first_states, cache = training_model.extend(params, prompt, word, valid, start)
        second_states, _ = training_model.extend(params, prompt, word, valid, cache)
        turns = (prompt_states, first_states, second_states)
        return [states.before.reshape(recipes.BATCH, -1) == 0 for states in turns]

    return np.asarray(run(jax.random.key(seed)))


def test_dropout_follows_its_key(loaded: Any) -> None:
    model, params = loaded("gpt2")
    model = model_of_embeddings(model)

    dropped = dropped_in_turns(model, params, seed=1)

    assert 0.2 < dropped.mean() < 0.4  # of 144 draws
    np.testing.assert_array_equal(dropped, dropped_in_turns(model, params, seed=1))
    assert (dropped != dropped_in_turns(model, params, seed=2)).any()


def test_prompt_and_turns_of_a_step_have_different_dropout(loaded: Any) -> None:
    model, params = loaded("gpt2")

    prompt, first, second = dropped_in_turns(model_of_embeddings(model), params, seed=1)

    assert (prompt != first).any()
    assert (first != second).any()


def test_a_model_without_a_key_drops_nothing(loaded: Any) -> None:
    model, params = loaded("gpt2")

    states, _ = model_of_embeddings(model).prefill(params, TOKENS, VALID)

    assert (np.asarray(states.before) != 0).all()


@pytest.mark.parametrize(
    ("name", "down", "query"),
    [
        ("t5_gated", 24**-0.5, (16 * 6) ** -0.5),
        extra("gpt2", 0.02, 0.02),
        extra("roberta", 0.02, 0.02),
    ],
)
def test_fresh_layers_have_the_spread_of_their_architecture(
    loaded: Any, name: str, down: float, query: float
) -> None:
    """T5's layers start by their inputs, its queries smaller, other models by their
    `initializer`.
    """
    params = jax.jit(loaded(name)[0].init)(jax.random.key(0))
    block = params["encoder" if name == "roberta" else "decoder"]["block_1"]
    assert float(block["feed_forward"]["down"]["kernel"].std()) == pytest.approx(down, rel=0.12)
    assert float(block["attention"]["query"]["kernel"].std()) == pytest.approx(query, rel=0.12)


@pytest.mark.parametrize("name", ["t5_gated", extra("gpt2"), extra("roberta")])
def test_fresh_norms_do_nothing_and_biases_are_zero(loaded: Any, name: str) -> None:
    params = jax.jit(loaded(name)[0].init)(jax.random.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        last = path[-1].key
        if last in ("scale", "bias"):
            np.testing.assert_array_equal(leaf, 1.0 if last == "scale" else 0.0, err_msg=str(path))


def test_fresh_models_follow_their_key(loaded: Any) -> None:
    init = jax.jit(loaded("gpt2")[0].init)
    one, same, other = (init(jax.random.key(seed)) for seed in (0, 0, 1))
    chex.assert_trees_all_equal(one, same)
    assert not np.array_equal(one["embedding"], other["embedding"])
