"""Logits with a row for each token of the vocabulary: those of `logits`, turned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import lora, weights
from motif_jax.lm.model import LanguageModel
from tests.lm import models


def states_of(model: LanguageModel, count: int = 5) -> jax.Array:
    return jax.random.normal(jax.random.key(1), (count, model.config.width))


# A tied head, a scaled tied head, and two heads of their own.
@pytest.mark.parametrize("name", ["qwen2", "t5", "t5_gated", "llama"])
@pytest.mark.parametrize("output_major", [False, True])
def test_they_are_the_logits_turned(tmp_path: Path, name: str, output_major: bool) -> None:
    settings = models.load(models.write(tmp_path, name))[0].config
    params = weights.load(tmp_path, settings, output_major=output_major)
    model = LanguageModel(settings, output_major=output_major)
    states = states_of(model)

    by_token = model.logits_by_token(params, states)

    assert by_token.shape == (settings.vocab_size, 5)
    np.testing.assert_allclose(by_token.T, model.logits(params, states), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_logits_are_float32_sums_in_any_dtype(tmp_path: Path, name: str) -> None:
    model, params = models.load(models.write(tmp_path, name))
    model = dataclasses.replace(model, dtype=jnp.bfloat16)
    states = states_of(model).astype(jnp.bfloat16)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    in_float32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (params, states))
    expected = dataclasses.replace(model, dtype=jnp.float32).logits(*in_float32)

    logits = model.logits(params, states)

    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert np.any(logits != logits.astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_allclose(
        model.logits_by_token(params, states).T, expected, rtol=1e-5, atol=1e-5
    )


def test_a_head_that_is_replaced_or_added_to_is_refused(tmp_path: Path) -> None:
    model, params = models.load(models.write(tmp_path, "llama"))
    spec = lora.Spec(("head",), rank=2)
    kernels, rest = lora.split_quantised(params, "int8", ["head"])
    additions = lora.init(jax.random.key(0), params, spec)
    rows = lora.init_rows(params, 3)

    with lora.added(additions, spec), pytest.raises(ValueError, match="head: a replaced layer"):
        model.logits_by_token(params, states_of(model))
    with lora.quantised(kernels), pytest.raises(ValueError, match="head: a replaced layer"):
        model.logits_by_token(rest, states_of(model))
    with lora.rows_added(rows), pytest.raises(ValueError, match="merge them first"):
        model.logits_by_token(params, states_of(model))
