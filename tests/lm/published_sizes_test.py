"""Published sizes: programs traced and lowered for GPUs without being run, memory computed from
shapes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices import parameter_sharding as sharding
from motif_jax.core.devices import platforms
from motif_jax.core.errors import UserError
from motif_jax.lm import config, footprint, generation, scoring
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sampling import Limits, Sampling
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
# Config, millions of parameters as published, tokens of a row (and of a decoder behind an encoder),
# the mesh, and GB of activations, with `remat`, and that on eight devices, as docs/language.md has
# them.
SIZES: dict[str, tuple[dict[str, Any], int, int, int, tuple[int, int, int], list[float]]] = {
    "flan_t5_large": (FLAN_T5_LARGE, 783, 512, 8, (4, 1, 1), [13.01, 1.18, 0.15]),
    "gpt2_medium": (GPT2_MEDIUM, 355, 1024, 0, (2, 2, 1), [31.55, 2.44, 0.85]),
    "llama_8b": (LLAMA_8B, 8030, 2048, 0, (1, 2, 2), [358.01, 17.92, 3.62]),
}
ROWS = 8
CHUNK = 1024
published = pytest.mark.parametrize("name", SIZES)


@pytest.fixture(autouse=True)
def form_of_a_gpu() -> Iterator[None]:
    """Programs have the form that a GPU gets, whichever this machine's CPU has."""
    with platforms.planned(platforms.GPU):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_memory_is_that_of_the_platform_that_is_planned_for() -> None:
    """A CPU keeps fewer scores of attention, and has no stacks of blocks."""
    settings = dataclasses.replace(config.parse(GPT2_MEDIUM), layers=2)
    of = functools.partial(
        footprint.of_training, LanguageModel(settings, jnp.float32), batch=2, length=512
    )

    gpu = of(platform=platforms.GPU)
    cpu = of(platform=platforms.CPU)

    assert of() == gpu  # the fixture plans for a GPU
    assert (cpu.parameters, cpu.optimizer) == (gpu.parameters, gpu.optimizer)
    weights = 2 * settings.layers * settings.heads * 512 * 512 * 4  # of both rows
    assert cpu.activations < gpu.activations - weights / 4


@pytest.mark.extra
@pytest.mark.parametrize("name", ["llama_8b", "flan_t5_large", "gpt2_medium"])
def test_memory_is_computed_from_shapes(name: str) -> None:
    _, millions, length, written, mesh, activations = SIZES[name]
    # Without the stacks that a step makes for its loop: docs/language.md has the table without
    # them.
    model = model_of(name, loop=False)
    again = model_of(name, remat=True, loop=False)
    sizes, eight = (dict(zip(sharding.AXES, shape, strict=True)) for shape in (mesh, (1, 8, 1)))
    of = functools.partial(
        footprint.of_training, batch=ROWS, length=length, written=written, chunk=CHUNK
    )
    one = of(model)
    less = of(again)
    least = of(again, sizes=eight)
    split = of(model, sizes=sizes)
    assert [memory.activations / 1e9 for memory in (one, less, least)] == pytest.approx(
        activations, abs=0.01
    )
    count = one.parameters // 4
    assert count / 1e6 == pytest.approx(millions, rel=0.002)
    assert (one.parameters, one.gradients) == (4 * count, 4 * count)
    assert one.optimizer == pytest.approx(8 * count, rel=1e-6)
    assert split.parameters == pytest.approx(one.parameters / (mesh[1] * mesh[2]), rel=0.08)
    assert split.activations < one.activations
    assert split.total < one.total
    frozen = of(model, trained={"a": np.zeros(10, np.float32)}, params_dtype=jnp.bfloat16)
    assert (frozen.parameters, frozen.gradients, frozen.optimizer) == (2 * count, 40, 84)
    with pytest.raises(
        UserError, match=r"GB a device \(parameters .* has 0\.10 GB: use more devices"
    ):
        one.require(10**8, "use more devices")
    one.require(None, "")
