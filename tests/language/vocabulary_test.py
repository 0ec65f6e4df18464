"""Rows for more tokens, tied and free."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.language import vocabulary
from motif_jax.language.model import LanguageModel
from motif_jax.support.errors import UserError
from tests.language import recipes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_more_tokens_change_nothing_for_those_that_are_there(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    assert vocabulary.extend(model.config, params, recipes.VOCAB, jax.random.key(0))[1] is params
    with pytest.raises(UserError, match="60 tokens is smaller"):
        vocabulary.extend(model.config, params, 60, jax.random.key(0))
    size = recipes.VOCAB + 3
    settings, grown = vocabulary.extend(model.config, params, size, jax.random.key(0))
    larger, tokens = LanguageModel(settings), recipes.tokens()
    valid = np.ones(tokens.shape, bool)
    models = (model, params), (larger, grown)
    before, after = (m.logits(p, m.prefill(p, tokens, valid)[0].after) for m, p in models)
    assert after.shape[-1] == settings.vocab_size == size
    np.testing.assert_allclose(after[..., : recipes.VOCAB], before, rtol=1e-5, atol=1e-5)
    # New tokens are read, differ from each other, and are neither the likeliest nor out of reach.
    fresh = np.asarray(grown["embedding"][recipes.VOCAB :])
    assert len({row.tobytes() for row in fresh}) == 3
    mean = np.asarray(params["embedding"]).mean(axis=0)
    assert (np.linalg.norm(fresh - mean, axis=1) < np.linalg.norm(params["embedding"], axis=1).min()).all()
    assert np.isfinite(larger.prefill(grown, tokens * 0 + size - 1, valid)[0].after).all()
    shapes = jax.eval_shape(larger.init, jax.random.key(0))
    assert jax.tree.map(lambda leaf: leaf.shape, grown) == jax.tree.map(lambda leaf: leaf.shape, shapes)
