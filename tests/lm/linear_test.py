"""Layers by their paths and patterns, what replaces their computation, and RoBERTa's head for
masked tokens.
"""

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
from safetensors.numpy import load_file, save_file
from scipy.special import erf

from motif_jax.core.errors import UserError
from motif_jax.core.sections import Lora
from motif_jax.lm import finetune_params, linear, lora, masked_head, weights
from motif_jax.lm.layers import Linear
from tests import plain_layers
from tests.lm import models, recipes

TREE: dict[str, Any] = {
    "b": {"key": {"kernel": 1, "bias": 2}, "up": {"kernel": 3}},
    "a": {"key": {"kernel": 4}},
}


def test_kernels_are_named_by_the_paths_of_their_layers() -> None:
    assert linear.kernels(TREE) == {("b", "key"): 1, ("b", "up"): 3, ("a", "key"): 4}


def test_layers_match_patterns_in_the_order_of_the_model() -> None:
    assert linear.matching(TREE, ("a/*", "*/key")) == [("b", "key"), ("a", "key")]


def test_kernels_are_removed_changed_and_added_by_path() -> None:
    tree = linear.replaced(TREE, {("b", "key"): None, ("a", "key"): 5, ("c",): 6})

    assert tree == {
        "b": {"key": {"bias": 2}, "up": {"kernel": 3}},
        "a": {"key": {"kernel": 5}},
        "c": {"kernel": 6},
    }


# A network of one layer; without replacements its outputs are 8 and 23.
NETWORK = nn.Sequential([Linear(2, use_bias=False, dtype=jnp.float32)])
X = jnp.array([[2.0, 3.0]])
NETWORK_PARAMS = {"params": {"layers_0": {"kernel": jnp.array([[1.0, 4.0], [2.0, 5.0]])}}}


def multiply(
    module: Linear, x: jax.Array, plain: Callable[[], jax.Array], factor: float
) -> jax.Array:
    return factor * plain() + x.sum()


def test_the_first_replacement_gets_the_result_of_the_next() -> None:
    with (
        linear.computed_by(multiply, {"layers_0": 3.0}),
        linear.computed_by(multiply, {"layers_0": 10.0}),
    ):
        outputs = NETWORK.apply(NETWORK_PARAMS, X)

    np.testing.assert_allclose(outputs, [[3 * (80 + 5) + 5, 3 * (230 + 5) + 5]])


def test_replacements_are_active_only_inside_their_context() -> None:
    with (
        linear.computed_by(multiply, {"layers_0": 3.0}),
        linear.computed_by(multiply, {"two": 7.0}),
    ):
        values = [dict(replacement.values) for replacement in linear.active()]

    assert values == [{"layers_0": 3.0}, {"two": 7.0}]
    assert linear.active() == ()
    np.testing.assert_allclose(NETWORK.apply(NETWORK_PARAMS, X), [[8, 23]])


def test_a_layer_without_a_value_is_not_replaced() -> None:
    with linear.computed_by(multiply, {"two": 3.0}):
        outputs = NETWORK.apply(NETWORK_PARAMS, X)

    np.testing.assert_allclose(outputs, [[8, 23]])


def test_the_section_lora_names_patterns_between_commas() -> None:
    spec = finetune_params.spec_of(Lora(patterns=" */query, ,*/key ", rank=3, alpha=5.0))
    assert spec == lora.Spec(("*/query", "*/key"), 3, 5.0)
    assert finetune_params.spec_of(Lora(patterns=" ,")) is None


@pytest.mark.parametrize("base", ["float32", "bfloat16", "int8"])
def test_a_frozen_base_and_additions_merge_into_one_model(loaded: Any, base: str) -> None:
    model, params = loaded("gpt2")
    adaptation = finetune_params.Adaptation(model, lora.Spec(("*/query",), 2, 6.0), base)
    learned, frozen = adaptation.arrange(params, {"bias": 7}, jax.random.key(0))
    assert set(learned) == {"additions", "masked_head"}
    assert set(frozen) == ({"model", "kernels"} if base == "int8" else {"model"})
    addition = learned["additions"]["decoder/block_1/attention/query"]
    addition["b"] = np.ones_like(addition["b"])

    merged, head = adaptation.merged_params(learned, frozen)

    expected = jax.tree.map(np.copy, params)
    expected["decoder"]["block_1"]["attention"]["query"]["kernel"] += (
        3 * addition["a"] @ addition["b"]
    )
    chex.assert_trees_all_close(merged, expected, atol=1e-6 if base == "float32" else 0.02)
    assert {leaf.dtype for leaf in jax.tree.leaves(merged)} == {np.dtype(np.float32)}
    assert head == {"bias": 7}


def test_without_additions_all_parameters_are_trained(loaded: Any) -> None:
    model, params = loaded("gpt2")

    learned, frozen = finetune_params.Adaptation(model).arrange(params, None, jax.random.key(0))

    assert learned == {"model": params}
    assert frozen == {}


def random_masked_head(folder: Path) -> dict[str, np.ndarray]:
    fresh = masked_head.init(jax.random.key(1), weights.read_config(folder))
    draws = np.random.default_rng(0)
    return {name: draws.normal(size=leaf.shape).astype(np.float32) for name, leaf in fresh.items()}


def test_a_masked_head_computes_as_numpy_does(tmp_path: Path) -> None:
    head = random_masked_head(models.write(tmp_path, "roberta"))
    draws = np.random.default_rng(1)
    table = draws.normal(size=(recipes.VOCAB, 16))
    states = draws.normal(size=(2, 3, 16))

    logits = masked_head.logits(head, jnp.asarray(table), jnp.asarray(states), 0.1)

    x = plain_layers.linear(states, head)
    x = x * (1 + erf(x / np.sqrt(2))) / 2
    x = plain_layers.normed(x, {"scale": head["norm_scale"], "bias": head["norm_bias"]}, 0.1)
    np.testing.assert_allclose(logits, x @ table.T + head["token_bias"], rtol=1e-4, atol=1e-4)


def test_a_masked_head_survives_saving_and_loading(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    assert masked_head.load(folder) is None
    head = random_masked_head(folder)

    masked_head.add(folder, head)

    jax.tree.map(np.testing.assert_array_equal, masked_head.load(folder), head)


def with_tensors(folder: Path, more: dict[str, np.ndarray]) -> Path:
    save_file({**load_file(folder / weights.SINGLE), **more}, folder / weights.SINGLE)
    return folder


def test_a_masked_head_with_its_own_table_is_refused(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    masked_head.add(folder, random_masked_head(folder))
    embedding = load_file(folder / weights.SINGLE)["roberta.embeddings.word_embeddings.weight"]
    assert masked_head.has_head(with_tensors(folder, {"lm_head.decoder.weight": embedding}))

    with_tensors(folder, {"lm_head.decoder.weight": embedding + 1})

    with pytest.raises(UserError, match="differs from the embedding"):
        masked_head.load(folder)


def test_a_masked_heads_file_has_the_names_of_transformers(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    before = set(load_file(folder / weights.SINGLE))

    masked_head.add(folder, random_masked_head(folder))

    names = ("bias", "dense.bias", "dense.weight", "layer_norm.bias", "layer_norm.weight")
    assert set(load_file(folder / weights.SINGLE)) - before == {f"lm_head.{name}" for name in names}
    assert json.loads((folder / "config.json").read_text())["architectures"] == [
        "RobertaForMaskedLM"
    ]


def test_a_fresh_masked_head_has_small_weights_and_no_bias(tmp_path: Path) -> None:
    folder = models.write(tmp_path, "roberta")
    fresh = masked_head.init(jax.random.key(1), weights.read_config(folder))
    assert float(fresh["kernel"].std()) == pytest.approx(0.02, rel=0.15)
    assert not any(fresh[name].any() for name in ("bias", "norm_bias", "token_bias"))
    np.testing.assert_array_equal(fresh["norm_scale"], 1)
