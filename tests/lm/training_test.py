"""Updates: one result in one piece and in several; low-rank additions; frozen bases in few bits."""

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

from motif_jax.lm import config, finetune_params, lora, quantised, training
from motif_jax.lm.model import LanguageModel
from tests.lm import recipes

SPEC = lora.Spec(("*/attention/query", "*/feed_forward/*"), rank=3, alpha=6.0)
ONE_LAYER = {**recipes.CONFIGS["llama"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64}


@functools.cache
def made() -> tuple[LanguageModel, Any]:
    """A model of one layer, with weights large enough that all of them matter."""
    model = LanguageModel(config.parse(ONE_LAYER))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    normal = np.random.default_rng(0).standard_normal
    return model, jax.tree.map(lambda leaf: (0.25 * normal(leaf.shape)).astype(np.float32), shapes)


@pytest.mark.parametrize("chunk", [None, 4])
def test_sums_and_the_step_are_those_of_plain_numpy(chunk: int | None) -> None:
    """Of a model whose states are one-hot tokens: the logits are rows of its parameters."""
    draws = np.random.default_rng(1)
    table, targets = draws.normal(size=(3, 3)).astype(np.float32), draws.integers(0, 3, (2, 2, 5))
    tokens, weights = draws.integers(0, 3, targets.shape), draws.uniform(0, 2, targets.shape)

    def sums(params: Any, frozen: Any, batch: training.TokenBatch, key: Any) -> training.TokenSums:
        states = jax.nn.one_hot(batch.tokens, 3)
        return training.token_sums(lambda x: x @ params, states, batch.targets, batch.weights, chunk)

    probabilities = softmax(table[tokens], axis=-1)
    loss = -(np.log(np.take_along_axis(probabilities, targets[..., None], -1)[..., 0]) * weights).sum()
    error = (probabilities - np.eye(3)[targets]) * weights[..., None]
    gradient = np.stack([error[tokens == token].sum(axis=0) for token in range(3)]) / weights.sum()
    right = (probabilities.argmax(axis=-1) == targets) * weights
    update = training.make_update(sums, optax.sgd(0.5), lambda tree: tree)
    state = training.LanguageTrainState(table, optax.sgd(0.5).init(table), jnp.int32(6))
    batches = training.TokenBatch(tokens, None, targets, weights.astype(np.float32))
    after, metrics = jax.jit(update)(state, None, batches)
    np.testing.assert_allclose(after.params, table - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    assert int(after.step) == 7
    expected = {"loss": loss / weights.sum(), "accuracy": right.sum() / weights.sum()}
    expected |= {"tokens": weights.sum(), "gradient_norm": np.linalg.norm(gradient)}
    assert {name: float(x) for name, x in metrics.items()} == pytest.approx(expected, rel=1e-4)


def test_patterns_choose_the_layers_with_an_addition() -> None:
    additions = lora.init(jax.random.key(0), made()[1], SPEC)
    block = "decoder/block_0"
    layers = ("attention/query", "feed_forward/activated", "feed_forward/down", "feed_forward/factor")
    assert set(additions) == {f"{block}/{layer}" for layer in layers}
    for layer in additions.values():
        assert (layer["a"].shape, layer["b"].shape) == ((64, 3), (3, 64))


def test_additions_begin_at_the_base() -> None:
    """B is zero; A is uniform up to one over the root of the inputs, and another for each layer."""
    additions = lora.init(jax.random.key(0), made()[1], SPEC)
    for layer in additions.values():
        assert not layer["b"].any()
        assert 0.9 < np.abs(layer["a"]).max() * np.sqrt(64) <= 1
    query, down = (
        additions[f"decoder/block_0/{name}"]["a"] for name in ("attention/query", "feed_forward/down")
    )
    assert not np.array_equal(query, down)


@pytest.mark.parametrize("kind", quantised.KINDS)
def test_codes_are_the_nearest_and_decode_to_what_the_layers_compute_with(kind: str) -> None:
    kernel = np.random.default_rng(0).normal(size=(128, 6)).astype(np.float32)
    encoded = quantised.encode(kernel, kind)
    decoded = np.asarray(quantised.decode(encoded))
    assert sum(part.nbytes for part in encoded.values()) <= kernel.nbytes * (0.3 if kind == "int8" else 0.19)
    block, gap = {"int8": (128, 0.5 / 127), "nf4": (64, (1 - 0.6961928) / 2)}[kind]
    largest = np.abs(kernel.reshape(-1, block, 6)).max(axis=1).repeat(block, axis=0)
    assert (np.abs(decoded - kernel) <= gap * largest * 1.001).all()
    again = quantised.decode(quantised.encode(decoded, kind))
    np.testing.assert_allclose(again, decoded, rtol=1e-6, atol=1e-7)
    assert not np.asarray(quantised.decode(quantised.encode(np.zeros((64, 2)), kind))).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_a_frozen_base_computes_as_its_decoded_kernels_and_does_not_move(kind: str) -> None:
    model, params = made()
    model = dataclasses.replace(model, remat=True)
    spec = lora.Spec(("*/block_*",), rank=2)
    kernels, rest = quantised.split(params, kind, spec.patterns)
    assert "attention" not in rest["decoder"]["block_0"]
    assert rest["head"]["kernel"] is params["head"]["kernel"]
    additions = lora.init(jax.random.key(1), params, spec)

    def plain(params: Any, rows: training.TokenBatch) -> training.TokenSums:
        states, logits = training.states_of(model, params, rows), functools.partial(model.logits, params)
        return training.token_sums(logits, states, rows.targets, rows.weights, None)

    def sums(additions: Any, frozen: Any, batch: training.TokenBatch, key: Any) -> training.TokenSums:
        with finetune_params.active({"kernels": frozen[0], "additions": additions}, spec):
            return plain(frozen[1], batch)

    state = training.LanguageTrainState(additions, optax.adam(0.1).init(additions), jnp.int32(0))
    update = jax.jit(training.make_update(sums, optax.adam(0.1), lambda tree: tree))
    draws, before = np.random.default_rng(2), jax.tree.map(np.copy, (kernels, rest))
    tokens, targets = draws.integers(3, recipes.VOCAB, (2, 2, 2, 6))
    valid = np.arange(6) < draws.integers(2, 7, (2, 2, 1))
    rows = training.TokenBatch(tokens, valid, targets, (valid * draws.random(valid.shape)).astype(np.float32))
    # Both parts in one, and the decoded kernels as parameters.
    decoded, joined = quantised.joined(kernels, rest), jax.tree.map(np.concatenate, rows)
    of_all = jax.jit(plain)
    state, metrics = update(state, (kernels, rest), rows)
    expected = of_all(decoded, joined)
    assert float(metrics["loss"]) == pytest.approx(float(expected.loss / expected.weight), rel=1e-5)
    chex.assert_trees_all_equal(before, (kernels, rest))
    # Merged into decoded kernels it is a model like any other.
    merged = of_all(lora.merged(decoded, state.params, spec), joined)
    _, after = update(state, (kernels, rest), rows)
    assert float(after["loss"]) == pytest.approx(float(merged.loss / merged.weight), rel=1e-4)
    assert float(after["loss"]) < float(metrics["loss"])
