"""Fresh models: their sizes, dropout, and comparing heads.

Comparing heads are attention heads initialised to attend to equal tokens and to neighbours
(`init_model.with_comparing_heads`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from motif_jax.lm import init_model
from motif_jax.lm.attention import relative_buckets
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import LanguageModel

HEADS = 4
TOKENS = {"start": 3, "pad": 4, "end": 5}


@pytest.mark.parametrize(
    ("kind", "groups"),
    [("gpt2", None), ("t5", None), ("llama", 2), ("qwen2", 1), ("roberta", None)],
)
def test_a_fresh_model_has_the_sizes_that_are_asked_for(kind: str, groups: int | None) -> None:
    config = init_model.make(kind, Sizes(16, 2, 4, groups, max_length=30), 50, TOKENS)

    assert (config.architecture, config.vocab_size, config.tied) == (kind, 50, True)
    assert (config.width, config.layers, config.heads, config.head_width) == (16, 2, 4, 4)
    assert (config.key_value_heads, config.feed_forward) == (groups or 4, 64)
    assert config.max_length == (None if kind == "t5" else 30)
    assert config.encoder_layers == (2 if kind == "t5" else 0)
    assert (config.pad_id, config.end_ids) == (4, (5,))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("t5", {"embeddings", "attention", "outputs", "inner", "final"}),
        ("gpt2", {"embeddings", "attention", "outputs"}),
        ("roberta", {"embeddings", "attention", "outputs"}),
        ("llama", {"attention"}),
        ("qwen2", {"attention"}),
    ],
)
def test_dropout_is_set_wherever_the_architecture_has_it(kind: str, fields: set[str]) -> None:
    config = init_model.make(kind, Sizes(16, 2, 4), 50, TOKENS)

    dropout = init_model.with_dropout(config, 0.25).dropout

    rates = dataclasses.asdict(dropout)
    assert {name for name, rate in rates.items() if rate == 0.25} == fields
    assert set(rates.values()) <= {0.25, 0.0}


class Comparing(NamedTuple):
    """A T5 as it begins, and with heads that compare tokens."""

    config: ModelConfig
    fresh: Any
    params: Any


@pytest.fixture(scope="module")
def comparing() -> Comparing:
    config = init_model.make("t5", Sizes(64, 2, HEADS), 50, TOKENS)
    fresh = jax.jit(LanguageModel(config).init)(jax.random.key(0))
    return Comparing(config, fresh, init_model.with_comparing_heads(fresh, config))


@pytest.mark.extra
@pytest.mark.parametrize(
    ("side", "name"),
    [("encoder", "attention"), ("decoder", "attention"), ("decoder", "cross_attention")],
)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_half_of_the_heads_attends_to_equal_tokens(
    comparing: Comparing, side: str, name: str, layer: int
) -> None:
    attention = comparing.params[side][f"block_{layer}"][name]
    # A text of all 50 tokens, normalised as the layer's inputs are: RMS norm without a scale.
    embeddings = np.asarray(comparing.params["embedding"])
    root_mean_square = np.sqrt((embeddings**2).mean(axis=-1, keepdims=True))
    inputs = embeddings / root_mean_square

    queries = (inputs @ np.asarray(attention["query"]["kernel"])).reshape(50, HEADS, -1)
    keys = (inputs @ np.asarray(attention["key"]["kernel"])).reshape(50, HEADS, -1)
    # T5 does not divide by the root of the width.
    logits = np.einsum("qhd,khd->hqk", queries, keys)
    weights = np.asarray(jax.nn.softmax(logits, axis=-1))

    # The tokens differ, so a token's weight on itself is its weight on equal ones: mean over
    # tokens, of each head.
    weight_on_itself = np.diagonal(weights, axis1=1, axis2=2).mean(axis=-1)
    assert (weight_on_itself[: HEADS // 2] > 0.5).all()
    assert (weight_on_itself[HEADS // 2 :] < 0.1).all()


@pytest.mark.extra
# Head -> the token that it attends to most from token 6: the previous one, 5, or the next one, 7.
@pytest.mark.parametrize(
    ("side", "targets"), [("encoder", {2: 5, 3: 7}), ("decoder", {2: 5, 3: 5})]
)
def test_the_other_heads_attend_to_neighbours(
    comparing: Comparing, side: str, targets: dict[int, int]
) -> None:
    config = comparing.config
    # Token 6 of 9; a decoder token sees no later token.
    keys = jnp.arange(9 if side == "encoder" else 7)
    buckets = relative_buckets(
        jnp.array([6]), keys, config.relative_buckets, config.relative_distance, side == "encoder"
    )

    bias = np.asarray(comparing.params[side]["relative_bias"])[np.asarray(buckets)[0]]
    weights = np.asarray(jax.nn.softmax(bias, axis=0))

    for head, token in targets.items():
        assert weights[token, head] > 0.9
    assert weights[:, :2].max() < 0.5


@pytest.mark.extra
def test_comparing_heads_change_only_biases_and_half_the_heads_keys(comparing: Comparing) -> None:
    fresh = flatten_dict(jax.device_get(comparing.fresh), sep="/")
    params = flatten_dict(comparing.params, sep="/")
    columns = HEADS // 2 * comparing.config.head_width

    changed = {name for name, leaf in params.items() if (leaf != fresh[name]).any()}

    keys = {name for name in changed if name.endswith("attention/key/kernel")}
    assert changed - keys == {"encoder/relative_bias", "decoder/relative_bias"}
    for name in keys:
        np.testing.assert_array_equal(params[name][:, columns:], fresh[name][:, columns:])
