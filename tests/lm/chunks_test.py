"""Log-probabilities in chunks: the numbers and gradients of one piece, without its wide array."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import chunks

WIDTH = 5
VOCAB = 61
DRAWS = np.random.default_rng(0)
TABLE = DRAWS.normal(size=(WIDTH, VOCAB))
STATES = DRAWS.normal(size=(3, 9, WIDTH))
TOKENS = DRAWS.integers(0, VOCAB, (3, 9))


class LinearModel:
    """A `LanguageModel` as far as its logits are read, whose parameters are their matrix
    [WIDTH, VOCAB].
    """

    def logits(self, params: jax.Array, states: jax.Array) -> jax.Array:
        return states @ params


def log_prob_sum(table: jax.Array, chunk: int | None) -> tuple[jax.Array, jax.Array]:
    model: Any = LinearModel()
    log_probs = chunks.log_probs(model, table, jnp.asarray(STATES), jnp.asarray(TOKENS), chunk)
    return log_probs.sum(), log_probs


@pytest.mark.parametrize("chunk", [None, 4, 27])
def test_log_probabilities_and_gradients_are_numpys_for_any_chunk(chunk: int | None) -> None:
    run = jax.jit(jax.grad(log_prob_sum, has_aux=True), static_argnums=1)

    gradient, log_probs = run(jnp.asarray(TABLE), chunk)

    probabilities = np.exp(STATES @ TABLE) / np.exp(STATES @ TABLE).sum(axis=-1, keepdims=True)
    expected = np.log(np.take_along_axis(probabilities, TOKENS[..., None], axis=-1)[..., 0])
    np.testing.assert_allclose(log_probs, expected, rtol=1e-4)
    expected_gradient = np.einsum("bsd,bsv->dv", STATES, np.eye(VOCAB)[TOKENS] - probabilities)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("chunk", "rows"), [(None, 27), (4, 4), (27, 27)])
def test_no_array_has_the_logits_of_more_than_a_chunk(chunk: int | None, rows: int) -> None:
    gradient = jax.grad(lambda table: log_prob_sum(table, chunk)[0])

    program = str(jax.make_jaxpr(gradient)(TABLE))

    assert f"[{rows},{VOCAB}]" in program
    if rows == 4:
        # Neither all rows, nor seven stacked chunks.
        assert f"[27,{VOCAB}]" not in program
        assert f"[7,4,{VOCAB}]" not in program
