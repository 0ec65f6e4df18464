"""Log-probabilities in chunks: the numbers and gradients of one piece, without its wide array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import scoring
from motif_jax.lm.generation import token_log_probs

WIDTH = 5
VOCAB = 61
DRAWS = np.random.default_rng(0)
TABLE = DRAWS.normal(size=(WIDTH, VOCAB))
STATES = DRAWS.normal(size=(3, 9, WIDTH))
TOKENS = DRAWS.integers(0, VOCAB, (3, 9))


def log_prob_sum(table: jax.Array, chunk: int | None) -> tuple[jax.Array, jax.Array]:
    def of_rows(rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        states, tokens = rows
        return token_log_probs(states @ table, tokens)

    rows = (jnp.asarray(STATES).reshape(-1, WIDTH), jnp.asarray(TOKENS).reshape(-1))
    log_probs = scoring.in_chunks(of_rows, rows, chunk).reshape(TOKENS.shape)
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
