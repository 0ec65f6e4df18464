"""Layers by their paths and patterns, what replaces their computation, and RoBERTa's head for masked tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import erf

from motif_jax.core.sections import Lora
from motif_jax.lm import finetune_params, linear, lora, masked_head, weights
from tests import plain_layers
from tests.lm import models, recipes

TREE: dict[str, Any] = {"b": {"key": {"kernel": 1, "bias": 2}, "up": {"kernel": 3}}}
TREE["a"] = {"key": {"kernel": 4}}


def test_layers_are_found_and_replaced_by_their_paths() -> None:
    assert linear.kernels(TREE) == {("b", "key"): 1, ("b", "up"): 3, ("a", "key"): 4}
    assert linear.matching(TREE, ("a/*", "*/key")) == [("b", "key"), ("a", "key")]
    changed = linear.replaced(TREE, {("b", "key"): None, ("a", "key"): 5, ("c",): 6})
    left = {"b": {"key": {"bias": 2}, "up": {"kernel": 3}}, "a": {"key": {"kernel": 5}}}
    assert changed == {**left, "c": {"kernel": 6}}


def test_of_several_replacements_the_first_gets_the_result_of_the_next() -> None:
    def times(module: nn.Dense, x: jax.Array, plain: Callable[[], jax.Array], factor: float) -> jax.Array:
        return factor * plain() + x.sum()

    network, x = nn.Sequential([nn.Dense(2, use_bias=False)]), jnp.array([[2.0, 3.0]])
    params = {"params": {"layers_0": {"kernel": jnp.array([[1.0, 4.0], [2.0, 5.0]])}}}
    with (
        linear.computed_by(times, {"layers_0": 3.0}),
        linear.computed_by(times, {"layers_0": 10.0, "two": 7.0}),
    ):
        found = network.apply(params, x)
        values = [dict(replacement.values) for replacement in linear.active()]
    np.testing.assert_allclose(found, [[3 * (80 + 5) + 5, 3 * (230 + 5) + 5]])
    np.testing.assert_allclose(network.apply(params, x), [[8, 23]])
    assert values == [{"layers_0": 3.0}, {"layers_0": 10.0, "two": 7.0}]
    assert linear.active() == ()


def test_a_layer_without_a_value_stays_as_it_is() -> None:
    network, x = nn.Sequential([nn.Dense(2, use_bias=False)]), jnp.array([[2.0, 3.0]])
    params = {"params": {"layers_0": {"kernel": jnp.array([[1.0, 4.0], [2.0, 5.0]])}}}
    with linear.computed_by(lambda module, x, plain, value: value * plain(), {"two": 3.0}):
        found = network.apply(params, x)
    np.testing.assert_allclose(found, [[8, 23]])


def test_the_section_lora_names_patterns_between_commas() -> None:
    spec = finetune_params.spec_of(Lora(patterns=" */query, ,*/key ", rank=3, alpha=5.0))
    assert spec == lora.Spec(("*/query", "*/key"), 3, 5.0)
    assert finetune_params.spec_of(Lora(patterns=" ,")) is None


@pytest.mark.parametrize("base", ["float32", "bfloat16", "int8"])
def test_parameters_are_divided_for_training_and_joined_again(loaded: Any, base: str) -> None:
    model, params = loaded("gpt2")
    assert finetune_params.Adaptation(model).arrange(params, None, None) == ({"model": params}, {})  # type: ignore[arg-type]
    adaptation = finetune_params.Adaptation(model, lora.Spec(("*/query",), 2, 6.0), base)
    learned, frozen = adaptation.arrange(params, {"bias": 7}, jax.random.key(0))
    assert list(learned) == ["additions", "masked_head"]
    assert list(frozen) == ["model", "kernels"][: 1 + (base == "int8")]
    layer = learned["additions"]["decoder/block_1/attention/query"]
    layer["b"] = np.ones_like(layer["b"])
    whole, head = adaptation.whole(learned, frozen)
    expected = jax.tree.map(np.copy, params)
    expected["decoder"]["block_1"]["attention"]["query"]["kernel"] += 3 * layer["a"] @ layer["b"]
    assert head == {"bias": 7}
    chex.assert_trees_all_close(whole, expected, atol={"float32": 1e-6}.get(base, 0.02))
    assert {leaf.dtype for leaf in jax.tree.leaves(whole)} == {np.dtype(np.float32)}


def test_the_masked_head_is_two_layers_and_the_table(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    settings = weights.read_config(folder)
    assert masked_head.load(folder) is None
    fresh = jax.device_get(masked_head.init(jax.random.key(1), settings))
    draws = np.random.default_rng(0)
    head = {name: draws.normal(size=leaf.shape).astype(np.float32) for name, leaf in fresh.items()}
    table, states = (draws.normal(size=shape) for shape in ((recipes.VOCAB, 16), (2, 3, 16)))
    x, norm = plain_layers.linear(states, head), {"scale": head["norm_scale"], "bias": head["norm_bias"]}
    x = plain_layers.normed(x * (1 + erf(x / np.sqrt(2))) / 2, norm, 0.1)
    found = masked_head.logits(head, jnp.asarray(table), jnp.asarray(states), 0.1)
    np.testing.assert_allclose(found, x @ table.T + head["token_bias"], rtol=1e-4, atol=1e-4)
    masked_head.add(folder, head)
    jax.tree.map(np.testing.assert_array_equal, masked_head.load(folder), head)


def test_a_masked_head_is_saved_by_the_names_of_transformers(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    before = set(load_file(folder / weights.SINGLE))
    masked_head.add(folder, jax.device_get(masked_head.init(jax.random.key(1), weights.read_config(folder))))
    names = ("bias", "dense.bias", "dense.weight", "layer_norm.bias", "layer_norm.weight")
    assert set(load_file(folder / weights.SINGLE)) - before == {f"lm_head.{name}" for name in names}
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["RobertaForMaskedLM"]


def test_a_fresh_masked_head_has_small_weights_and_no_bias(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    fresh = masked_head.init(jax.random.key(1), weights.read_config(folder))
    assert float(fresh["kernel"].std()) == pytest.approx(0.02, rel=0.15)
    assert not any(fresh[name].any() for name in ("bias", "norm_bias", "token_bias"))
    np.testing.assert_array_equal(fresh["norm_scale"], 1)
