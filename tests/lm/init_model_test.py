"""Fresh models that begin with more than chance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from motif_jax.lm import init_model
from motif_jax.lm.attention import relative_buckets
from motif_jax.lm.init_model import Sizes
from motif_jax.lm.model import LanguageModel

HEADS = 4
TOKENS = {"start": 3, "pad": 4, "end": 5}


@pytest.mark.parametrize(
    ("kind", "groups"), [("gpt2", None), ("t5", None), ("llama", 2), ("qwen2", 1), ("roberta", None)]
)
def test_a_fresh_model_has_the_sizes_that_are_asked_for(kind: str, groups: int | None) -> None:
    made = init_model.make(kind, Sizes(16, 2, 4, groups, max_length=30), 50, TOKENS)
    assert (made.architecture, made.vocab_size, made.tied) == (kind, 50, True)
    assert (made.width, made.layers, made.heads, made.head_width) == (16, 2, 4, 4)
    assert (made.key_value_heads, made.feed_forward) == (groups or 4, 64)
    assert made.max_length == (None if kind == "t5" else 30)
    assert made.encoder_layers == (2 if kind == "t5" else 0)
    assert (made.pad_id, made.end_ids) == (4, (5,))


@pytest.mark.parametrize("kind", ["gpt2", "t5", "llama", "qwen2", "roberta"])
def test_dropout_stands_wherever_the_architecture_has_it(kind: str) -> None:
    made = init_model.make(kind, Sizes(16, 2, 4), 50, TOKENS)
    dropout = init_model.with_dropout(made, 0.25).dropout
    rates = (dropout.embeddings, dropout.attention, dropout.outputs, dropout.inner, dropout.final)
    places = {"t5": 5, "gpt2": 3, "roberta": 3}.get(kind)
    assert dropout.attention == 0.25
    assert sum(rate == 0.25 for rate in rates) == (places or 1)
    assert set(rates) <= {0.25, 0.0}


@pytest.fixture(scope="module")
def found():
    config = init_model.make("t5", Sizes(64, 2, HEADS), 50, TOKENS)
    fresh = jax.jit(LanguageModel(config).init)(jax.random.key(0))
    return config, fresh, init_model.with_comparing_heads(fresh, config)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["encoder/attention", "decoder/attention", "decoder/cross_attention"])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_heads_look_at_equal_tokens(found, place, layer) -> None:
    config, fresh, made = found
    side, name = place.split("/")
    table = np.asarray(made["embedding"])
    read = table / np.sqrt((table**2).mean(axis=-1, keepdims=True))
    part = made[side][f"block_{layer}"][name]
    query, key = ((read @ np.asarray(part[of]["kernel"])).reshape(50, HEADS, -1) for of in ("query", "key"))
    scores = np.einsum("qhd,khd->hqk", query, key)
    looked = np.asarray(jax.nn.softmax(scores, axis=-1))[:, np.arange(50), np.arange(50)].mean(axis=-1)
    # Of 50 different tokens the one of its own.
    assert (looked[:2] > 0.5).all()
    assert (looked[2:] < 0.1).all()
    before, half = fresh[side][f"block_{layer}"][name]["key"]["kernel"], HEADS // 2 * config.head_width
    assert (part["key"]["kernel"][:, half:] == before[:, half:]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("side", "looks_at"), [("encoder", {2: 5, 3: 7}), ("decoder", {2: 5, 3: 5})])
def test_the_other_heads_look_at_neighbours(found, side, looks_at) -> None:
    config, _, made = found
    keys = jnp.arange(9 if side == "encoder" else 7)  # a decoder's token sees none behind it
    sizes = config.relative_buckets, config.relative_distance, side == "encoder"
    buckets = np.asarray(relative_buckets(jnp.array([6]), keys, *sizes))[0]
    weights = np.asarray(jax.nn.softmax(np.asarray(made[side]["relative_bias"])[buckets], axis=0))
    assert all(weights[token, head] > 0.9 for head, token in looks_at.items())
    assert weights[:, :2].max() < 0.5


def test_all_else_is_as_it_was(found) -> None:
    _, fresh, made = (flatten_dict(tree, sep="/") if isinstance(tree, dict) else tree for tree in found)
    changed = {name for name, leaf in made.items() if (np.asarray(leaf) != np.asarray(fresh[name])).any()}
    keys = {name for name in changed if name.endswith("attention/key/kernel")}
    assert changed - keys == {"encoder/relative_bias", "decoder/relative_bias"}
