"""Means of the states of written candidates are those of the whole texts in one pass."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql import chai_candidates
from motif_jax.lm.generation import Limits, Sampling
from tests.lm import models, recipes


@pytest.mark.slow
def test_means_are_of_all_tokens_of_text_and_candidate(loaded: Any) -> None:
    model, params = loaded("gpt2")
    tokens = jnp.asarray(recipes.tokens())
    valid = jnp.asarray(recipes.mask("right"))
    keys = jax.random.split(jax.random.key(4), (len(tokens), 2))
    limits = Limits(4, tuple(range(30)))
    sampling = Sampling()
    write = jax.jit(
        functools.partial(
            chai_candidates.write_candidates, model, limits=limits, sampling=sampling, pad=0
        )
    )
    written = write(params, tokens, valid, keys)
    prefill = jax.jit(model.prefill)
    assert len(set(np.asarray(written.valid).sum(axis=-1).ravel())) > 1, (
        "all candidates are of one length"
    )
    for number in range(2):
        texts = jnp.concatenate([tokens, written.tokens[:, number]], axis=1)
        counted = jnp.concatenate([valid, written.valid[:, number]], axis=1)
        states = prefill(params, texts, counted)[0].after
        read = states[:, : recipes.LENGTH]
        wanted = models.reference("gpt2", "right/states")
        np.testing.assert_allclose(read[valid], wanted[valid], rtol=1e-3, atol=1e-4)
        expected = jnp.where(counted[..., None], states, 0.0).sum(axis=1) / counted.sum(
            axis=1, keepdims=True
        )
        np.testing.assert_allclose(written.means[:, number], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(written.counts[:, number], counted.sum(axis=1))
