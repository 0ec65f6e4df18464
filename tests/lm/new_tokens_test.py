"""Rows of new tokens learn beside low-rank additions, and the rest of the tables stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import lora
from motif_jax.lm.model import LanguageModel
from tests.lm import models
from tests.sets import extra

COUNT = 3
SPEC = lora.Spec(("*/attention/query",), rank=2)


def model_of(folder: Path, name: str) -> tuple[LanguageModel, Any]:
    return models.load(models.write(folder, name))


def additions_of(params: Any) -> dict[str, Any]:
    """Drawn additions to layers and to the rows of the last tokens."""
    fresh = {
        **lora.init(jax.random.key(0), params, SPEC),
        lora.NEW_TOKENS: lora.init_rows(params, COUNT),
    }
    return jax.tree.map(
        lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape), fresh
    )


def logits_of(model: LanguageModel, params: Any, tokens: jax.Array) -> jax.Array:
    @jax.jit  # traced at each call, since what is added is read from the context
    def run(params: Any) -> jax.Array:
        states, _ = model.prefill(params, tokens, jnp.ones(tokens.shape, bool))
        return model.logits(params, states.after)

    return run(params)


def all_tokens(model: LanguageModel) -> jax.Array:
    return jnp.arange(model.config.vocab_size)[None]


# A head of its own, a tied head, a scaled embedding.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", extra("qwen2"), extra("gemma3")])
def test_added_rows_compute_what_merged_tables_do(tmp_path: Path, name: str) -> None:
    model, params = model_of(tmp_path, name)
    additions = additions_of(params)
    tokens = all_tokens(model)

    with lora.added(additions, SPEC):
        logits = logits_of(model, params, tokens)

    of_merged = logits_of(model, lora.merged(params, additions, SPEC), tokens)
    np.testing.assert_allclose(logits, of_merged, rtol=2e-4, atol=2e-4)
    assert np.abs(logits - logits_of(model, params, tokens)).max() > 0.1


@pytest.mark.slow
def test_fresh_rows_leave_the_model_as_it_is(tmp_path: Path) -> None:
    model, params = model_of(tmp_path, "llama")
    tokens = all_tokens(model)

    with lora.rows_added(lora.init_rows(params, COUNT)):
        logits = logits_of(model, params, tokens)

    np.testing.assert_array_equal(logits, logits_of(model, params, tokens))


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_merging_changes_the_rows_of_new_tokens_alone(tmp_path: Path, name: str) -> None:
    _, params = model_of(tmp_path, name)
    rows = additions_of(params)[lora.NEW_TOKENS]

    merged = lora.rows_merged(params, rows)

    tables = [(merged["embedding"], params["embedding"])]
    if "head" in params:
        tables.append((merged["head"]["kernel"].T, params["head"]["kernel"].T))
    assert len(tables) == len(rows)
    for changed, table in tables:
        np.testing.assert_array_equal(changed[:-COUNT], table[:-COUNT])
        assert (np.asarray(changed[-COUNT:]) != np.asarray(table[-COUNT:])).all()


@pytest.mark.slow
def test_rows_of_new_tokens_have_gradients_from_input_and_output(tmp_path: Path) -> None:
    model, params = model_of(tmp_path, "llama")
    rows = lora.init_rows(params, COUNT)
    last = model.config.vocab_size - 1
    tokens = jnp.array([[1, last, 2]])

    def loss(rows: Any) -> jax.Array:
        with lora.rows_added(rows):
            return -jax.nn.log_softmax(logits_of(model, params, tokens))[0, 0, last]

    gradient = jax.jit(jax.grad(loss))(rows)

    assert np.abs(gradient["head"][-1]).max() > 1e-4
    # The token is read behind the position that the loss looks at.
    assert np.abs(gradient["embedding"]).max() == 0
