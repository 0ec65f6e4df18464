"""In chunks as in one piece, and without the wide array of the whole, neither forwards nor backwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import chunks

WIDTH, VOCAB = 5, 61
MODEL: Any = SimpleNamespace(logits=lambda params, states: states @ params)


@pytest.mark.parametrize("chunk", [None, 4, 27])
def test_log_probabilities_do_not_depend_on_the_chunk_and_rows_are_never_together(chunk: int | None) -> None:
    draws = np.random.default_rng(0)
    table, states = draws.normal(size=(WIDTH, VOCAB)), draws.normal(size=(3, 9, WIDTH))
    tokens = draws.integers(0, VOCAB, (3, 9))

    def total(table: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = chunks.log_probs(MODEL, table, jnp.asarray(states), jnp.asarray(tokens), chunk)
        return found.sum(), found

    gradient, found = jax.jit(jax.grad(total, has_aux=True))(jnp.asarray(table))
    probabilities = np.exp(states @ table) / np.exp(states @ table).sum(axis=-1, keepdims=True)
    expected = np.log(np.take_along_axis(probabilities, tokens[..., None], axis=-1)[..., 0])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    slope = np.einsum("bsd,bsv->dv", states, np.eye(VOCAB)[tokens] - probabilities)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-4)
    text = str(jax.make_jaxpr(jax.grad(lambda table: total(table)[0]))(table))
    assert (f"[4,{VOCAB}]" in text) == (chunk == 4)
    assert (f"[27,{VOCAB}]" in text) == (chunk != 4)
    assert f"[7,4,{VOCAB}]" not in text
