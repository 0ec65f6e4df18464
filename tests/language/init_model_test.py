"""Fresh models that begin with more than chance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language import init_model
from motif_jax.language.attention import relative_buckets
from motif_jax.language.init_model import Sizes
from motif_jax.language.model import LanguageModel

HEADS = 4


@pytest.fixture(scope="module")
def found():
    config = init_model.make("t5", Sizes(64, 2, HEADS), 50, {"start": 0, "pad": 0, "end": 1})
    fresh = LanguageModel(config).init(jax.random.key(0))
    return config, fresh, init_model.with_comparing_heads(fresh, config)


@pytest.mark.parametrize("place", ["encoder/attention", "decoder/attention", "decoder/cross_attention"])
@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_heads_look_at_equal_tokens(found, place, layer) -> None:
    config, fresh, made = found
    side, name = place.split("/")
    table = np.asarray(made["embedding"])
    read = table / np.sqrt((table**2).mean(axis=-1, keepdims=True))
    part = made[side][f"block_{layer}"][name]
    query, key = (
        (read @ np.asarray(part[of]["kernel"])).reshape(50, HEADS, config.head_width)
        for of in ("query", "key")
    )
    scores = np.einsum("qhd,khd->hqk", query, key)
    looked = np.asarray(jax.nn.softmax(scores, axis=-1))[:, np.arange(50), np.arange(50)].mean(axis=-1)
    # Of 50 different tokens the one of its own.
    assert (looked[:2] > 0.5).all()
    assert (looked[2:] < 0.1).all()
    before = fresh[side][f"block_{layer}"][name]["key"]["kernel"]
    half = HEADS // 2 * config.head_width
    assert (part["key"]["kernel"][:, half:] == before[:, half:]).all()


@pytest.mark.parametrize(
    ("side", "looks_at"), [("encoder", {2: 5, 3: 7}), ("decoder", {2: 5, 3: 5})], ids=["encoder", "decoder"]
)
def test_the_other_heads_look_at_neighbours(found, side, looks_at) -> None:
    config, _, made = found
    both_ways = side == "encoder"
    keys = jnp.arange(9 if both_ways else 7)  # a decoder's token sees none behind it
    buckets = relative_buckets(
        jnp.array([6]), keys, config.relative_buckets, config.relative_distance, both_ways
    )
    bias = np.asarray(made[side]["relative_bias"])[np.asarray(buckets)[0]]
    weights = np.asarray(jax.nn.softmax(bias, axis=0))
    for head, token in looks_at.items():
        assert weights[token, head] > 0.9
    assert weights[:, :2].max() < 0.5


def test_all_else_is_as_it_was(found) -> None:
    _, fresh, made = found
    changed = {
        "/".join(str(entry.key) for entry in path)
        for path, (old, new) in jax.tree_util.tree_leaves_with_path(
            jax.tree.map(lambda old, new: (old, new), fresh, made),
            is_leaf=lambda leaf: isinstance(leaf, tuple),
        )
        if (np.asarray(old) != np.asarray(new)).any()
    }
    assert {name.rsplit("/", 2)[-2] for name in changed if name.endswith("kernel")} == {"key"}
    assert {name for name in changed if not name.endswith("kernel")} == {
        "encoder/relative_bias",
        "decoder/relative_bias",
    }
