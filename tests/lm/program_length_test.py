"""Programs of language models, lowered for CUDA, hold one block however many the model has: a GPU's
compiler takes minutes for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import _language, language_update, text_train
from motif_jax.lm import config as configs
from motif_jax.lm import generation, scoring
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import LanguageModel

# Layers of Flan-T5-large and of GPT-2, of which nothing else is as large here: a program's length
# depends on the number of layers.
T5_LAYERS = 24
GPT2_LAYERS = 12
MAX_RATIO = 1.3
VOCABULARY = 64


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lower` lowers for CUDA, and what looks at the platform finds a GPU."""
    for_cuda = functools.partialmethod(jax.stages.Traced.lower, lowering_platforms=("cuda",))
    monkeypatch.setattr(jax.stages.Traced, "lower", for_cuda)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def t5(layers: int) -> dict[str, Any]:
    return _language.t5_shape(16, 24, layers, 2, key=8, vocabulary=VOCABULARY)


def lines(program: Any, *arguments: Any) -> int:
    return len(program.lower(*arguments).as_text().splitlines())


def update_lines(layers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of GLAM's PPO update as `benchmark.py:language_update_gpu` runs it, with few rows."""
    monkeypatch.setitem(_language.SHAPES, "narrow_t5", t5(layers))
    chosen = language_update.options()
    sizes = {
        "model": "narrow_t5",
        "prompt_tokens": 8,
        "rollout": 2,
        "batch_size": 8,
        "minibatch": 4,
        "microbatch": 2,
    }
    chosen.update(language_update.GPU_SIZE | sizes)
    config = ConfigDict({"options": chosen, "seed": 1})
    network = language_update.agent(chosen, seed=1)
    algorithm = language_update.algorithm_of(config, network)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    return lines(
        jax.jit(algorithm.update), state, language_update.batch(chosen, VOCABULARY, seed=1)
    )


def model_lines(layers: int, function: Callable[[LanguageModel, Any], Any]) -> int:
    """Of a function of a T5 in bfloat16 and its parameters."""
    model = LanguageModel(configs.parse(t5(layers)), jnp.bfloat16)
    params = jax.eval_shape(model.init, jax.random.key(0))
    return lines(jax.jit(functools.partial(function, model)), params)


def scores(model: LanguageModel, params: Any) -> jax.Array:
    prompt = jnp.ones((2, 8), jnp.int32)
    words = jnp.ones((3, 2), jnp.int32)
    return scoring.score(model, params, prompt, prompt > 0, words, words > 0).total


def text(model: LanguageModel, params: Any) -> jax.Array:
    prompt = jnp.ones((2, 8), jnp.int32)
    key = jax.random.key(0)
    return generation.generate(
        model, params, prompt, prompt > 0, key, Limits(4, (1,)), Sampling(greedy=True)
    ).tokens


def ilql_lines(layers: int) -> int:
    """Of ILQL's training step with three trunks of GPT-2, as `benchmark.py:text_train_gpu` compiles
    it.
    """
    chosen = text_train.options()
    chosen.update(
        {"width": 16, "layers": layers, "vocabulary": VOCABULARY, "dtype": "bfloat16", "length": 64}
    )
    objective, learned, frozen = text_train.subject(ConfigDict({"options": chosen, "seed": 1}))
    batch = text_train.batch_of(chosen, seed=1)
    step = text_train.TrainingStep(objective, learned, frozen["target"], batch, micro=2)
    return lines(step.program, step.carry, step.rows)


@pytest.mark.extra
def test_an_update_of_t5_does_not_grow_with_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert update_lines(T5_LAYERS, monkeypatch) <= MAX_RATIO * update_lines(2, monkeypatch)


@pytest.mark.extra
@pytest.mark.parametrize("function", [scores, text])
def test_scores_and_texts_do_not_grow_with_layers(function: Any) -> None:
    assert model_lines(T5_LAYERS, function) <= MAX_RATIO * model_lines(2, function)


@pytest.mark.extra
def test_a_step_of_ilql_does_not_grow_with_layers() -> None:
    assert ilql_lines(GPT2_LAYERS) <= MAX_RATIO * ilql_lines(2)
