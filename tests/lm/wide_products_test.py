"""Weights in bfloat16 that are multiplied in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from motif_jax.lm import wide_products
from tests.lm import models

TOKENS = jnp.asarray([[5, 3, 9, 14, 2]])


def logits(model, params) -> np.ndarray:
    """Logits after every token."""
    states = model.prefill(params, TOKENS, jnp.ones(TOKENS.shape, bool))[0].after
    return np.asarray(model.logits(params, states))


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2"])
def test_logits_are_those_of_float32_with_the_rounded_weights(family, tmp_path) -> None:
    model, params = models.load(models.write(tmp_path, family))
    halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), halved)

    wide_model, wide_params = wide_products.multiplied_in_float32(model, halved)

    np.testing.assert_allclose(logits(wide_model, wide_params), logits(model, rounded), atol=1e-5)


def test_matrices_stay_as_small_as_they_are(tmp_path) -> None:
    model, params = models.load(models.write(tmp_path, "llama"))
    halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)

    _, wide_params = wide_products.multiplied_in_float32(model, halved)

    dtypes = {path[-1]: leaf.dtype.name for path, leaf in flatten_dict(wide_params).items()}
    assert dtypes == {"embedding": "bfloat16", "kernel": "bfloat16", "scale": "float32"}
