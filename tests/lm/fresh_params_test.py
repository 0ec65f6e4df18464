"""Fresh parameters are the same however their program is arranged, and that program does not grow
with the layers.
"""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import numpy as np
import pytest

from motif_jax.lm.config import ModelConfig
from motif_jax.lm.init_model import Sizes, make
from motif_jax.lm.model import LanguageModel, fresh_stacked_params
from tests.sets import extra

TOKENS = {"start": 0, "pad": 1, "end": 2}


def settings(architecture: str, layers: int = 3) -> ModelConfig:
    return make(architecture, Sizes(width=16, layers=layers, heads=2, max_length=8), 24, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", ["gpt2", *(extra(name) for name in ("t5", "llama", "qwen2", "roberta"))]
)
def test_stacked_draws_are_those_of_blocks_one_by_one(architecture: str) -> None:
    model = LanguageModel(settings(architecture), loop=True)
    key = jax.random.key(5)

    params = model.init(key)

    expected = dataclasses.replace(model, loop=False).init(key)
    chex.assert_trees_all_close(params, expected, rtol=1e-6)


def test_fresh_blocks_differ() -> None:
    blocks = LanguageModel(settings("gpt2"), loop=True).init(jax.random.key(5))["decoder"]

    kernels = [blocks[f"block_{block}"]["attention"]["query"]["kernel"] for block in range(3)]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.01
    assert np.abs(kernels[1] - kernels[2]).max() > 0.01


def test_the_programs_length_does_not_depend_on_the_layers() -> None:
    def lines(layers: int) -> int:
        network = LanguageModel(settings("t5", layers)).network
        draw = jax.jit(functools.partial(fresh_stacked_params, network))
        return len(draw.lower(jax.random.key(0)).as_text().splitlines())

    assert lines(24) <= 1.1 * lines(2)


@pytest.mark.extra
def test_more_layers_compile_no_more_programs(caplog: pytest.LogCaptureFixture) -> None:
    def programs(layers: int) -> int:
        jax.clear_caches()
        caplog.clear()
        with jax.log_compiles():
            LanguageModel(settings("t5", layers), loop=True).init(jax.random.key(0))
        return sum("Finished XLA compilation" in record.message for record in caplog.records)

    assert 0 < programs(9) <= programs(4)
