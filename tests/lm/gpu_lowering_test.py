"""Programs of language models are lowered for a GPU, which needs none: they sum in float32 and call
nothing that a GPU may lack.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.benchmarks import language_update
from motif_jax.glam.agent import TOKENS
from motif_jax.ilql.agent.text_session import StackedModels
from motif_jax.lm import config as configs
from motif_jax.lm import next_token, scoring
from motif_jax.lm.model import LanguageModel
from tests.agents import nethack_network
from tests.ilql.agent import stacked_trunks_test
from tests.lm import recipes
from tests.lowering import products, unfit_for_a_gpu

QUESTIONS = [[3, 4, 5, 6], [3, 4, 7], [3, 4, 5, 8, 9]]
UPDATE = {
    "model": "tiny_t5", "prompt_tokens": 12, "batch_size": 8, "rollout": 2, "minibatch": 4, "microbatch": 2, "candidates": 3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with mock.patch.object(jax, "default_backend", return_value="gpu"):
        yield


def text_of(program: Callable[..., Any], *arguments: Any) -> str:
    """The program in StableHLO, for CUDA."""
    return jax.jit(program).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def bfloat16_model(name: str) -> tuple[LanguageModel, Any]:
    """A model of two layers, and the shapes of its parameters in bfloat16."""
    model = LanguageModel(configs.parse(recipes.CONFIGS[name]), jnp.bfloat16)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return model, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), shapes)


def update_agent() -> tuple[ConfigDict, Any]:
    """A language agent in bfloat16 of a GPU's options, and the options."""
    chosen = language_update.options()
    chosen.update(language_update.GPU_SIZE | UPDATE)
    return ConfigDict({"options": chosen, "seed": 1}), language_update.agent(chosen, seed=1)


@pytest.mark.slow
def test_the_judge_is_fit_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    class Lowered:
        """In place of `jax.jit`: keeps the text of each program, which returns zeros."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function

        def lower(self, *arguments: Any) -> Lowered:
            texts.append(text_of(self._function, *arguments))
            return self

        def compile(self) -> Callable[..., Any]:
            return self._zeros

        def __call__(self, *arguments: Any) -> Any:
            return self.lower(*arguments)._zeros(*arguments)

        def _zeros(self, *arguments: Any) -> Any:
            shapes = jax.eval_shape(self._function, *arguments)
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    monkeypatch.setattr(next_token, "jax", SimpleNamespace(jit=Lowered, nn=jax.nn, Array=jax.Array))
    model, shapes = bfloat16_model("qwen2")
    params = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    scorer = next_token.NextToken(model, params, [[1], [2, 3]], shared=[3, 4], batch=4)

    assert sum(len(tokens.positions) for tokens in scorer(QUESTIONS)) == len(QUESTIONS)
    # The shared beginning, the questions, and the logits after them.
    assert len(texts) == 3
    assert [unfit_for_a_gpu(text) for text in texts] == [[], [], []]


@pytest.mark.extra
def test_a_language_agents_acting_is_fit_for_a_gpu() -> None:
    config, agent = update_agent()
    params = jax.eval_shape(agent.init, jax.random.key(0))
    observation = {TOKENS: np.ones((1, 4, config.options.prompt_tokens), np.int32)}

    text = text_of(agent.apply, params, observation, agent.initial_state(4), np.zeros((1, 4), bool))

    assert unfit_for_a_gpu(text) == []


@pytest.mark.extra
def test_a_ppo_update_of_t5_is_fit_for_a_gpu() -> None:
    config, agent = update_agent()
    algorithm = language_update.algorithm_of(config, agent)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    data = language_update.batch(config.options, agent.model.config.vocab_size, seed=1)

    assert unfit_for_a_gpu(text_of(algorithm.update, state, data)) == []


@pytest.mark.extra
def test_a_gradient_of_t5_is_fit_for_a_gpu() -> None:
    model, _ = bfloat16_model("t5_gated")
    # Trainings have them in float32.
    params = jax.eval_shape(model.init, jax.random.key(0))
    prompt = jnp.ones((2, 8), jnp.int32)
    words = jnp.ones((3, 2), jnp.int32)

    def loss(params: Any) -> jax.Array:
        return scoring.score(model, params, prompt, prompt > 0, words, words > 0).total.sum()

    assert unfit_for_a_gpu(text_of(jax.grad(loss), params)) == []


@pytest.mark.extra
def test_trunks_of_one_program_are_fit_for_a_gpu() -> None:
    model, params = bfloat16_model("gpt2")
    embeddings = jax.ShapeDtypeStruct((3, 3, 2, 2, model.config.width), jnp.bfloat16)
    run = functools.partial(stacked_trunks_test.run, StackedModels(model))

    text = text_of(run, embeddings, [params] * 3)

    assert unfit_for_a_gpu(text) == []
    # Three trunks in one product.
    assert any(types[0].startswith("3x") for types in products(text, "dot_general"))


def test_a_game_network_planned_for_a_gpu_convolves_pictures() -> None:
    """A CPU acts by tables."""

    def acting_tables() -> list[Any]:
        network = nethack_network()
        params = jax.eval_shape(network.init, jax.random.key(0))
        return jax.tree.leaves(jax.eval_shape(network.prepare, params).tables)

    assert not acting_tables()
    with mock.patch.object(jax, "default_backend", return_value="cpu"):
        assert acting_tables()
