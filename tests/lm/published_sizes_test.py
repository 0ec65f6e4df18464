"""Published sizes: programs traced and lowered for GPUs without being run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from motif_jax.lm import config, generation, scoring
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import LanguageModel, param_shapes
from tests.lowering import long_bfloat16_sums

FLAN_T5_LARGE = {"model_type": "t5", "vocab_size": 32128, "d_model": 1024, "d_kv": 64, "d_ff": 2816}
FLAN_T5_LARGE |= {"num_heads": 16, "num_layers": 24, "num_decoder_layers": 24}
FLAN_T5_LARGE |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
GPT2_MEDIUM = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1024}
GPT2_MEDIUM |= {"n_layer": 24, "n_head": 16}
LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
}
LLAMA_8B |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA_8B |= {"max_position_embeddings": 8192, "rope_theta": 500000.0}
# Config, millions of parameters as published, tokens of a row.
SIZES: dict[str, tuple[dict[str, Any], int, int]] = {
    "flan_t5_large": (FLAN_T5_LARGE, 783, 512),
    "gpt2_medium": (GPT2_MEDIUM, 355, 1024),
    "llama_8b": (LLAMA_8B, 8030, 2048),
}
published = pytest.mark.parametrize("name", SIZES)


@pytest.fixture(autouse=True)
def form_of_a_gpu() -> Iterator[None]:
    """Programs have the form that a GPU gets, whichever this machine's CPU has."""
    with mock.patch.object(jax, "default_backend", return_value="gpu"):
        yield


def model_of(name: str, **changes: Any) -> LanguageModel:
    return LanguageModel(config.parse(SIZES[name][0]), jnp.bfloat16, **changes)


def for_cuda(program: Any, *arguments: Any) -> str:
    """The program in StableHLO as a GPU would get it."""
    text: str = program.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text.replace("custom_call @Sharding", "")
    assert "f64>" not in text
    assert not long_bfloat16_sums(text)
    return text


@pytest.mark.extra
@published
def test_scoring_and_writing_are_lowered_for_gpus(name: str) -> None:
    length = SIZES[name][2]
    published_model = model_of(name)
    # Layers are alike: a few of them are enough of a program.
    few = {"layers": 2, "encoder_layers": min(2, published_model.config.encoder_layers)}
    model = dataclasses.replace(
        published_model, config=dataclasses.replace(published_model.config, **few)
    )
    shapes = jax.eval_shape(LanguageModel(model.config).init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), shapes)
    prompt = jax.ShapeDtypeStruct((4, length - 16), jnp.int32)
    valid = jax.ShapeDtypeStruct(prompt.shape, bool)
    options = jax.ShapeDtypeStruct((4, 6, 3), jnp.int32), jax.ShapeDtypeStruct((4, 6, 3), bool)
    for_cuda(jax.jit(functools.partial(scoring.score, model)), params, prompt, valid, *options)
    how = {"limits": Limits(16, (1,)), "sampling": Sampling(top_p=0.9)}
    write = functools.partial(generation.generate, model, **how)  # type: ignore[arg-type]
    for_cuda(jax.jit(write), params, prompt, valid, jax.random.key(0))


@published
def test_parameters_are_as_many_as_published(name: str) -> None:
    _, millions, _ = SIZES[name]
    shapes = jax.tree.leaves(param_shapes(model_of(name).config))

    assert sum(leaf.size for leaf in shapes) / 1e6 == pytest.approx(millions, rel=0.002)
