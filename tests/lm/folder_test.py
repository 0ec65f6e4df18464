"""Whole folders written and read again: config, weights, heads; what was there before does not
shine through.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import chex
import jax
import jax.numpy as jnp
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.lm import config, folder, weights
from motif_jax.lm.config import Dropout, ModelConfig, Rotary
from motif_jax.lm.heads import HeadConfig, Heads
from tests.lm import models
from tests.lm.models import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_config_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    settings = config.parse(models.recipes.CONFIGS[name])
    assert config.to_values(settings).items() >= models.recipes.CONFIGS[name].items()
    rarer = dataclasses.replace(settings, end_ids=(3, 4), start_id=5, pad_id=6, norm_epsilon=1e-3)
    if settings.rotary is not None:
        rarer = dataclasses.replace(rarer, max_length=None)
    for written in (settings, rarer):
        assert None not in config.to_values(written).values()
        atomic_write_json(tmp_path / config.FILE, config.to_values(written))
        assert config.read(tmp_path) == written


# What a config.json with nothing but these sizes means: transformers' defaults.
SIZES = {"vocab_size": 50, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 3}
SIZES |= {"num_attention_heads": 2, "max_position_embeddings": 40}
SMALL = {
    "vocab_size": 50,
    "width": 12,
    "layers": 3,
    "heads": 2,
    "key_value_heads": 2,
    "head_width": 6,
}
SILU = {
    "feed_forward": 20,
    "activation": "silu",
    "gated": True,
    "max_length": 40,
    "norm_epsilon": 1e-6,
}
SILU |= {"tied": False, "rotary": Rotary(), "pad_id": 2, "start_id": 1, "end_ids": (2,)}
GELU = {"activation": "gelu_new", "max_length": 40, "dropout": Dropout(0.1, 0.1, 0.1)}
RELU = {"activation": "relu", "feed_forward": 20, "scaled_head": True, "initializer": 1.0}
T5 = {"vocab_size": 50, "d_model": 12, "d_kv": 6, "d_ff": 20, "num_layers": 3, "num_heads": 2}
ROBERTA = {"feed_forward": 20, "activation": "gelu", "max_length": 38, "pad_id": 1, "end_ids": (2,)}
GPT2 = {"vocab_size": 50, "n_positions": 40, "n_embd": 12, "n_layer": 3, "n_head": 2}
DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "t5": (T5, {**RELU, "encoder_layers": 3, "norm_epsilon": 1e-6, "dropout": Dropout(*[0.1] * 5)}),
    "gpt2": (GPT2, {**GELU, "feed_forward": 48, "pad_id": 49, "start_id": 49, "end_ids": (49,)}),
    "llama": (SIZES, SILU),
    "qwen2": (SIZES, {**SILU, "attention_bias": True}),
    "roberta": (SIZES, {**GELU, **ROBERTA}),
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_what_a_config_leaves_out_is_as_in_transformers(kind: str) -> None:
    values, expected = DEFAULTS[kind]
    assert config.parse({**values, "model_type": kind}) == ModelConfig(
        kind, **{**SMALL, **expected}
    )


def test_a_folder_keeps_model_and_heads_and_nothing_else(tmp_path: Path, monkeypatch: Any) -> None:
    theirs = models.write(tmp_path / "theirs", "llama")
    (theirs / "tokenizer.json").write_text("{}")
    settings, params, none, _ = folder.read(theirs)
    assert not none.configs
    heads = Heads(
        settings.width, {"value": HeadConfig(1, (4,)), "q": HeadConfig(settings.vocab_size)}
    )
    head_params = heads.init(jax.random.key(0))
    ours = tmp_path / "ours"
    with monkeypatch.context() as patched:
        patched.setattr(weights, "SHARD_BYTES", 4000)
        folder.write(ours, settings, params, heads, head_params, tokenizer=theirs)
    assert (ours / "tokenizer.json").read_text() == "{}"
    reread = folder.read(ours)
    assert (reread.config, dict(reread.heads.configs)) == (settings, dict(heads.configs))
    chex.assert_trees_all_equal((reread.params, reread.head_params), (params, head_params))
    doubled = jax.tree.map(lambda leaf: 2 * leaf, params)
    folder.write(ours, settings, doubled)
    assert [path.name for path in ours.glob("model*")] == [weights.SINGLE]
    chex.assert_trees_all_equal(folder.read(ours).params, doubled)


def test_a_folder_with_half_a_model_is_no_model(tmp_path: Path, monkeypatch: Any) -> None:
    ours = models.write(tmp_path / "ours", "gpt2")
    settings, params, *_ = folder.read(ours)
    monkeypatch.setattr(weights, "save", Mock(side_effect=OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        folder.write(ours, settings, params)
    with pytest.raises(UserError, match=config.FILE):
        folder.read(ours)


def test_bfloat16_is_kept(tmp_path: Path) -> None:
    settings, *_ = folder.read(models.write(tmp_path / "theirs", "gpt2"))
    params = weights.load(tmp_path / "theirs", settings, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    folder.write(tmp_path / "ours", settings, params)
    chex.assert_trees_all_equal(weights.load(tmp_path / "ours", settings, jnp.bfloat16), params)
