"""Blocks in one loop give what they give one after the other: states, gradients, texts, with
everything that changes layers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql.agent.text_session import StackedModels
from motif_jax.lm import beams, finetune_params, generation, lora, scoring
from motif_jax.lm.finetune_params import Adaptation
from motif_jax.lm.generation import Limits, Sampling, Segments
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text_batches import TokenBatch
from tests.ilql.agent import stacked_trunks_test
from tests.lm import recipes
from tests.lm.models import DECODERS, NAMES
from tests.sets import extra

pytestmark = pytest.mark.slow
TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))
SPEC = lora.Spec(("*/query", "*/block_1/feed_forward/*"), 2, 4.0)
# Of decoders: one without and one with windows, and `--all` has the others.
SEVERAL = [name if name in ("gpt2", "gemma3") else extra(name) for name in DECODERS]
ALL_LAYERS = {
    "gpt2": ("*/attention/*", "*/feed_forward/*"),
    "t5": ("*/attention/*", "*/cross_attention/*", "*/feed_forward/*"),
}


def both(model: LanguageModel) -> tuple[LanguageModel, LanguageModel]:
    """The model whose blocks run in a loop, and the one whose blocks run one after the other."""
    return dataclasses.replace(model, loop=True), dataclasses.replace(model, loop=False)


def batch_of(model: LanguageModel) -> TokenBatch:
    """Rows to predict, behind an encoder's prompt where there is one."""
    prompt = (TOKENS, VALID) if model.config.encoder_layers else (None, None)
    weights = jnp.linspace(0.5, 1.5, TOKENS.size).reshape(TOKENS.shape)
    return TokenBatch(TOKENS, VALID, jnp.roll(TOKENS, -1, axis=1), weights, *prompt)


def gradient(model: LanguageModel, learned: Any, frozen: Any, **how: Any) -> Any:
    """The mean loss and its gradient."""
    adaptation = Adaptation(model, **how)
    key = jax.random.key(3)

    def loss(learned: Any, frozen: Any) -> jax.Array:
        if model.config.has_decoder:
            return adaptation.sums(learned, frozen, batch_of(model), key).loss / TOKENS.size
        used = model.with_dropout(key) if adaptation.dropout else model
        return jnp.square(finetune_params.states_of(used, learned["model"], batch_of(model))).mean()

    return jax.jit(jax.value_and_grad(loss))(learned, frozen)


def assert_close(values: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal structures, and numbers that differ by at most `tolerance` of the largest of their
    array.

    Arrays below a hundredth of the largest count as that large: the gradient of keys' biases is
    rounding alone.
    """
    assert jax.tree.structure(values) == jax.tree.structure(expected)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for (path, leaf), other in zip(
        jax.tree.leaves_with_path(values), jax.tree.leaves(expected), strict=True
    ):
        limit = tolerance * max(float(np.abs(other).max()), 0.01 * largest)
        np.testing.assert_allclose(
            leaf, other, rtol=0, atol=limit, err_msg=jax.tree_util.keystr(path)
        )


def assert_same_gradient(
    model: LanguageModel, learned: Any, frozen: Any = None, **how: Any
) -> None:
    looped, expected = (gradient(form, learned, frozen, **how) for form in both(model))
    assert_close(looped, expected, 1e-4)


@pytest.mark.parametrize(
    "name", [name if name in ("t5", "gpt2", "gemma3") else extra(name) for name in NAMES]
)
def test_states_are_the_same(loaded: Callable[[str], Any], name: str) -> None:
    model, params = loaded(name)
    looped, expected = (jax.jit(form.prefill)(params, TOKENS, VALID)[0] for form in both(model))
    assert_close(looped, expected)


@pytest.mark.parametrize(
    ("name", "remat"),
    [
        extra("t5", False),
        ("gpt2", True),
        *(extra(name, False) for name in NAMES if name != "t5"),
        extra("t5", True),
    ],
)
def test_the_gradient_is_equal_in_the_parameters_layout(
    loaded: Callable[[str], Any], name: str, remat: bool
) -> None:
    model, params = loaded(name)
    assert_same_gradient(dataclasses.replace(model, remat=remat), {"model": params})


@pytest.mark.extra
@pytest.mark.parametrize("name", SEVERAL)
def test_scores_are_the_same(loaded: Callable[[str], Any], name: str) -> None:
    model, params = loaded(name)
    candidates = TOKENS[:2, :3]
    arguments = (params, TOKENS, VALID, candidates, jnp.ones(candidates.shape, bool))
    looped, expected = (
        jax.jit(functools.partial(scoring.score, form))(*arguments) for form in both(model)
    )
    assert_close(looped, expected)


@pytest.mark.extra
@pytest.mark.parametrize("name", SEVERAL)
def test_the_greedy_text_is_the_same(loaded: Callable[[str], Any], name: str) -> None:
    model, params = loaded(name)

    def text(model: LanguageModel, params: Any) -> Any:
        sampling = Sampling(greedy=True)
        limits = Limits(8, (-1,))
        return generation.generate(
            model, params, TOKENS, VALID, jax.random.key(0), limits, sampling, 2
        ).tokens

    looped, expected = (jax.jit(functools.partial(text, form))(params) for form in both(model))
    np.testing.assert_array_equal(looped, expected)


@pytest.mark.extra
@pytest.mark.parametrize("name", [extra("t5"), "gpt2"])
def test_the_beams_are_the_same(loaded: Callable[[str], Any], name: str) -> None:
    model, params = loaded(name)
    limits = Limits(6, (int(recipes.tokens()[0, 0]),))
    arguments = (params, TOKENS, VALID, limits, 3)
    looped, expected = (
        jax.jit(functools.partial(beams.beam_search, form), static_argnums=(3, 4))(*arguments)
        for form in both(model)
    )
    np.testing.assert_array_equal(looped.tokens, expected.tokens)
    assert_close(looped.scores, expected.scores)


@pytest.mark.extra
def test_segments_drop_the_same_prompts(loaded: Callable[[str], Any]) -> None:
    model, params = loaded("gpt2")
    prompts = np.asarray(TOKENS), np.asarray(VALID)
    limits = Limits(9, ())
    sampling = Sampling(temperature=1.0)

    def texts(model: LanguageModel) -> Any:
        def ends(tokens: Any) -> bool:
            return len(tokens) > 3 + tokens[0] % 5

        return Segments(model, 3).write(
            params, *prompts, jax.random.key(0), limits, sampling, 1, ends
        )

    looped, expected = (texts(form) for form in both(model))
    np.testing.assert_array_equal(looped.tokens, expected.tokens)


@pytest.mark.extra
@pytest.mark.parametrize("name", [extra("t5"), "llama"])
def test_low_rank_additions_to_some_layers_have_the_same_gradient(
    loaded: Callable[[str], Any], name: str
) -> None:
    model, params = loaded(name)
    additions = lora.init(jax.random.key(1), params, SPEC)
    additions = jax.tree.map(lambda leaf: leaf + 0.1, additions)
    assert_same_gradient(model, {"additions": additions}, {"model": params}, spec=SPEC)


@pytest.mark.extra
@pytest.mark.parametrize(
    ("name", "blocks"),
    [("gpt2", "one"), extra("gpt2", "all"), extra("t5", "one"), extra("t5", "all")],
)
def test_a_quantised_base_has_the_same_gradient(
    loaded: Callable[[str], Any], name: str, blocks: str
) -> None:
    model, params = loaded(name)
    patterns = ALL_LAYERS[name] if blocks == "all" else ("*/block_1/feed_forward/*",)
    additions = jax.tree.map(lambda leaf: leaf + 0.1, lora.init(jax.random.key(1), params, SPEC))
    kernels, rest = lora.split_quantised(params, "int8", patterns)
    assert_same_gradient(
        model, {"additions": additions}, {"model": rest, "kernels": kernels}, spec=SPEC
    )


@pytest.mark.extra
@pytest.mark.parametrize(
    ("name", "remat"),
    [extra("t5", False), extra("t5", True), ("gpt2", False), extra("roberta", False)],
)
def test_dropout_drops_the_same(loaded: Callable[[str], Any], name: str, remat: bool) -> None:
    model, params = loaded(name)
    rates = dataclasses.replace(
        model.config.dropout, embeddings=0.1, attention=0.2, inner=0.2, outputs=0.3
    )
    config = dataclasses.replace(model.config, dropout=rates)
    dropping = dataclasses.replace(model, config=config, remat=remat)
    assert_same_gradient(dropping, {"model": params}, dropout=True)


@pytest.mark.extra
@pytest.mark.parametrize("joint", [False, extra(True)])
def test_trunks_give_the_same(loaded: Callable[[str], Any], joint: bool) -> None:
    model, params = loaded("gpt2")
    trees = [jax.tree.map(lambda leaf, by=scale: leaf * by, params) for scale in (1.0, 1.2, 0.8)]
    embeddings = jax.random.normal(jax.random.key(0), (3, 3, 2, 2, model.config.width))

    def states(model: LanguageModel) -> Any:
        stacked = StackedModels(model, joint)
        return jax.jit(functools.partial(stacked_trunks_test.run, stacked))(embeddings, trees)

    looped, expected = (states(form) for form in both(model))
    assert_close(tuple(looped[1:]), tuple(expected[1:]))
    np.testing.assert_array_equal(looped.cache.valid, expected.cache.valid)
