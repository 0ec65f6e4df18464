"""One result whatever way it is computed; fresh models, and dropout."""

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

pytestmark = pytest.mark.slow
TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_text_has_the_log_probabilities_and_entropies_of_its_logits(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    text, valid = TOKENS[:, 1:4], jnp.ones((recipes.BATCH, 3), bool)
    look = jax.jit(functools.partial(scoring.look, model, chunk=4))
    found = look(params, TOKENS, VALID, text, valid)

    def by_hand(params: Any) -> jax.Array:
        if name == "llama":  # a decoder alone does not predict its first token
            return model.logits(params, model.prefill(params, text, valid)[0].after[:, :-1])
        before = jnp.pad(text[:, :-1], ((0, 0), (1, 0)))[:, None]  # the start token is 0
        _, prompt = model.prefill(params, TOKENS, VALID)
        return model.logits(params, model.extend(params, prompt, before, before >= 0)[0].after[:, 0])

    logs = np.asarray(jax.nn.log_softmax(jax.jit(by_hand)(params)))
    start = text.shape[1] - logs.shape[1]
    chosen = np.take_along_axis(logs, np.asarray(text)[:, start:, None], axis=-1)[..., 0]
    for ours, theirs in zip(found, (chosen, -(np.exp(logs) * logs).sum(axis=-1)), strict=True):
        np.testing.assert_allclose(ours[:, start:], theirs, rtol=1e-4, atol=1e-5)


def test_recomputation_and_bfloat16_keep_the_gradient(loaded: Any) -> None:
    model, params = loaded("llama")

    def gradient(model: LanguageModel) -> Any:
        def loss(params: Any) -> jax.Array:
            states, _ = model.prefill(params, TOKENS, VALID)
            return jnp.square(model.logits(params, states.after)).mean()

        return jax.jit(jax.grad(loss))(params)

    plain = gradient(model)
    short = LanguageModel(model.config, jnp.bfloat16)
    for other, limit in ((LanguageModel(model.config, remat=True), 1e-5), (short, 5e-2)):
        found = gradient(other)
        chex.assert_type(jax.tree.leaves(found), jnp.float32)
        assert optax.tree.norm(optax.tree.sub(found, plain)) <= limit * optax.tree.norm(plain)


def test_dropout_follows_its_key_and_every_turn_of_a_step_has_draws_of_its_own(loaded: Any) -> None:
    """Seen on a model without layers: what dropout leaves out of the embeddings is 0 in its states."""
    model, params = loaded("gpt2")
    settings = dataclasses.replace(model.config, layers=0, dropout=Dropout(embeddings=0.3))
    model, word = LanguageModel(settings), TOKENS[:, None, :1]

    @jax.jit
    def run(key: jax.Array) -> list[jax.Array]:
        training, good = model.with_dropout(key), jnp.ones(word.shape, bool)
        states, prompt = training.prefill(params, TOKENS[:, :1], good[:, 0])
        first, cache = training.extend(params, prompt, word, good, model.start(recipes.BATCH, 1, 2))
        second, _ = training.extend(params, prompt, word, good, cache)
        return [part.before.reshape(recipes.BATCH, -1) == 0 for part in (states, first, second)]

    one, same, other = (np.asarray(run(jax.random.key(seed))) for seed in (1, 1, 2))
    assert 0.2 < one.mean() < 0.4  # of 144 draws
    np.testing.assert_array_equal(one, same)
    for a, b in ((one, other), (one[:1], one[1:2]), (one[1:2], one[2:])):
        assert (a != b).any()
    assert (np.asarray(model.prefill(params, TOKENS, VALID)[0].before) != 0).all()


@pytest.mark.parametrize(
    ("name", "down", "query"),
    [("t5_gated", 24**-0.5, (16 * 6) ** -0.5), ("gpt2", 0.02, 0.02), ("roberta", 0.02, 0.02)],
)
def test_fresh_layers_have_the_spread_of_their_architecture(
    loaded: Any, name: str, down: float, query: float
) -> None:
    """T5's layers start by their inputs, its queries smaller, other models by their `initializer`."""
    params = jax.jit(loaded(name)[0].init)(jax.random.key(0))
    block = params["encoder" if name == "roberta" else "decoder"]["block_1"]
    assert float(block["feed_forward"]["down"]["kernel"].std()) == pytest.approx(down, rel=0.12)
    assert float(block["attention"]["query"]["kernel"].std()) == pytest.approx(query, rel=0.12)


@pytest.mark.parametrize("name", ["t5_gated", "gpt2", "roberta"])
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
