"""Updates against numpy, low-rank additions, and frozen bases in few bits."""

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
from scipy.special import softmax

from motif_jax.core.training import gradient_sums
from motif_jax.core.training.gradient_sums import Sums, TrainState
from motif_jax.lm import config, finetune_params, lora
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.text_batches import TokenBatch
from tests.lm import recipes
from tests.sets import extra

SPEC = lora.Spec(("*/attention/query", "*/feed_forward/*"), rank=3, alpha=6.0)
ONE_LAYER = {
    **recipes.CONFIGS["llama"],
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 64,
}


@functools.cache
def one_layer_model() -> tuple[LanguageModel, Any]:
    """A model of one layer, with weights large enough that all of them matter."""
    model = LanguageModel(config.parse(ONE_LAYER))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    normal = np.random.default_rng(0).standard_normal
    return model, jax.tree.map(lambda leaf: (0.25 * normal(leaf.shape)).astype(np.float32), shapes)


@pytest.mark.parametrize("chunk", [None, 4])
def test_a_step_and_its_metrics_are_numpys(chunk: int | None) -> None:
    """Of a model whose states are one-hot tokens: the logits are rows of its parameters."""
    draws = np.random.default_rng(1)
    table = draws.normal(size=(3, 3)).astype(np.float32)
    # Two micro-batches.
    targets = draws.integers(0, 3, (2, 2, 5))
    tokens = draws.integers(0, 3, targets.shape)
    weights = draws.uniform(0, 2, targets.shape)

    def sums(params: Any, frozen: Any, batch: TokenBatch, key: Any) -> Sums:
        states = jax.nn.one_hot(batch.tokens, 3)
        return finetune_params.token_sums(
            lambda x: x @ params, states, batch.targets, batch.weights, chunk
        )

    update = gradient_sums.make_update(sums, optax.sgd(0.5), lambda tree: tree)
    state = TrainState(table, optax.sgd(0.5).init(table), jnp.int32(6))
    batches = TokenBatch(tokens, None, targets, weights.astype(np.float32))

    after, metrics = jax.jit(update)(state, None, batches)

    probabilities = softmax(table[tokens], axis=-1)
    log_probs = np.log(np.take_along_axis(probabilities, targets[..., None], -1)[..., 0])
    error = (probabilities - np.eye(3)[targets]) * weights[..., None]
    gradient = np.stack([error[tokens == token].sum(axis=0) for token in range(3)]) / weights.sum()
    correct = np.where(probabilities.argmax(axis=-1) == targets, weights, 0)
    np.testing.assert_allclose(after.params, table - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    assert int(after.step) == 7
    expected = {
        "loss": -(log_probs * weights).sum() / weights.sum(),
        "accuracy": correct.sum() / weights.sum(),
        "tokens": weights.sum(),
        "gradient_norm": np.linalg.norm(gradient),
    }
    assert {name: float(x) for name, x in metrics.items()} == pytest.approx(expected, rel=1e-4)


def test_patterns_choose_the_layers_with_an_addition() -> None:
    _, params = one_layer_model()

    additions = lora.init(jax.random.key(0), params, SPEC)

    block = "decoder/block_0"
    layers = (
        "attention/query",
        "feed_forward/activated",
        "feed_forward/down",
        "feed_forward/factor",
    )
    assert set(additions) == {f"{block}/{layer}" for layer in layers}
    for layer in additions.values():
        assert (layer["a"].shape, layer["b"].shape) == ((64, 3), (3, 64))


def test_fresh_additions_are_zero_products_of_random_a() -> None:
    _, params = one_layer_model()

    additions = lora.init(jax.random.key(0), params, SPEC)

    for layer in additions.values():
        assert not layer["b"].any()
        # Uniform up to one over the root of the inputs.
        assert 0.9 < np.abs(layer["a"]).max() * np.sqrt(64) <= 1


def test_layers_have_different_fresh_additions() -> None:
    _, params = one_layer_model()

    additions = lora.init(jax.random.key(0), params, SPEC)

    query = additions["decoder/block_0/attention/query"]["a"]
    down = additions["decoder/block_0/feed_forward/down"]["a"]
    assert not np.array_equal(query, down)


@pytest.mark.parametrize("has_others", [True, False])
def test_a_difference_leads_from_one_models_additions_to_anothers(has_others: bool) -> None:
    _, params = one_layer_model()
    draws = np.random.default_rng(0)

    def drawn() -> dict[str, dict[str, np.ndarray]]:
        rows = {"embedding": np.zeros((2, params["embedding"].shape[1]))}
        additions = {**lora.init(jax.random.key(0), params, SPEC), "new_tokens": rows}
        return jax.tree.map(lambda leaf: draws.normal(size=leaf.shape).astype("f4"), additions)

    one = drawn()
    other = drawn() if has_others else None
    begun = params if other is None else lora.merged(params, other, SPEC)

    difference = lora.difference(one, other, SPEC)

    wanted = lora.merged(params, one, SPEC)
    led = lora.merged(begun, difference, lora.DIFFERENCE)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), led, wanted)
    query = difference["decoder/block_0/attention/query"]
    assert query["a"].shape == (64, 6 if has_others else 3)


@pytest.mark.parametrize("kind", lora.QUANTISED)
def test_codes_are_those_of_the_nearest_levels(kind: str) -> None:
    kernel = np.random.default_rng(0).normal(size=(128, 6)).astype(np.float32)

    decoded = np.asarray(lora.decode_kernel(lora.encode_kernel(kernel, kind)))

    # Inputs with one scale, and half the widest gap between levels, in units of the scale.
    block, half_gap = {"int8": (128, 0.5 / 127), "nf4": (64, (1 - 0.6961928) / 2)}[kind]
    largest = np.abs(kernel.reshape(-1, block, 6)).max(axis=1).repeat(block, axis=0)
    assert (np.abs(decoded - kernel) <= half_gap * largest * 1.001).all()


@pytest.mark.parametrize(("kind", "share"), [("int8", 0.3), ("nf4", 0.19)])
def test_codes_take_a_share_of_the_memory(kind: str, share: float) -> None:
    kernel = np.zeros((128, 6), np.float32)

    encoded = lora.encode_kernel(kernel, kind)

    assert sum(array.nbytes for array in encoded.values()) <= kernel.nbytes * share


@pytest.mark.parametrize("kind", lora.QUANTISED)
def test_decoded_kernels_are_encoded_without_loss(kind: str) -> None:
    kernel = np.random.default_rng(0).normal(size=(128, 6)).astype(np.float32)
    decoded = np.asarray(lora.decode_kernel(lora.encode_kernel(kernel, kind)))

    again = lora.decode_kernel(lora.encode_kernel(decoded, kind))

    np.testing.assert_allclose(again, decoded, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", lora.QUANTISED)
def test_a_kernel_of_zeros_is_encoded_without_loss(kind: str) -> None:
    assert not np.asarray(lora.decode_kernel(lora.encode_kernel(np.zeros((64, 2)), kind))).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [extra("int8"), "nf4"])
def test_a_frozen_base_computes_as_its_decoded_kernels_and_stays(kind: str) -> None:
    model, params = one_layer_model()
    model = dataclasses.replace(model, remat=True)
    spec = lora.Spec(("*/block_*",), rank=2)
    kernels, rest = lora.split_quantised(params, kind, spec.patterns)
    assert "attention" not in rest["decoder"]["block_0"]
    assert rest["head"]["kernel"] is params["head"]["kernel"]
    additions = lora.init(jax.random.key(1), params, spec)

    def plain(params: Any, rows: TokenBatch) -> Sums:
        states = finetune_params.states_of(model, params, rows)
        logits = functools.partial(model.logits, params)
        return finetune_params.token_sums(logits, states, rows.targets, rows.weights, None)

    def sums(additions: Any, frozen: Any, batch: TokenBatch, key: Any) -> Sums:
        with finetune_params.active({"kernels": frozen[0], "additions": additions}, spec):
            return plain(frozen[1], batch)

    state = TrainState(additions, optax.adam(0.1).init(additions), jnp.int32(0))
    update = jax.jit(gradient_sums.make_update(sums, optax.adam(0.1), lambda tree: tree))
    before = jax.tree.map(np.copy, (kernels, rest))
    draws = np.random.default_rng(2)
    tokens, targets = draws.integers(3, recipes.VOCAB, (2, 2, 2, 6))
    valid = np.arange(6) < draws.integers(2, 7, (2, 2, 1))
    rows = TokenBatch(
        tokens, valid, targets, (valid * draws.random(valid.shape)).astype(np.float32)
    )

    state, metrics = update(state, (kernels, rest), rows)
    _, later_metrics = update(state, (kernels, rest), rows)

    # The decoded kernels as parameters, and both micro-batches in one.
    plain_sums = jax.jit(plain)
    decoded = lora.join_quantised(kernels, rest)
    all_rows = jax.tree.map(np.concatenate, rows)
    expected = plain_sums(decoded, all_rows)
    assert float(metrics["loss"]) == pytest.approx(float(expected.loss / expected.weight), rel=1e-5)
    # Merged into decoded kernels it is a model like any other.
    merged = plain_sums(lora.merged(decoded, state.params, spec), all_rows)
    assert float(later_metrics["loss"]) == pytest.approx(
        float(merged.loss / merged.weight), rel=1e-4
    )
    assert float(later_metrics["loss"]) < float(metrics["loss"])
    chex.assert_trees_all_equal(before, (kernels, rest))
