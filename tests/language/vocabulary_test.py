"""Rows for more tokens, tied and free."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.language import config, vocabulary
from motif_jax.language.model import LanguageModel
from motif_jax.support.errors import UserError
from tests.language import recipes

KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_more_tokens_change_nothing_for_those_that_are_there(loaded: Any, name: str) -> None:
    model, params = loaded(name)
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


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_rows_are_cut_off_and_added_and_the_models_own_number_changes_nothing(name: str) -> None:
    settings = dataclasses.replace(config.parse(recipes.CONFIGS[name]), vocab_size=4)
    table, norm = np.arange(12.0).reshape(4, 3), np.ones(1)
    with_head = lambda rows: {} if name == "gpt2" else {"head": {"kernel": -rows.T}}  # noqa: E731
    params = {"embedding": table, "norm": norm, **with_head(table)}
    for unchanged in (vocabulary.cut(settings, params, 4), vocabulary.extend(settings, params, 4, KEY)):
        assert unchanged == (settings, params)
    fewer = (
        dataclasses.replace(settings, vocab_size=2),
        {"embedding": table[:2], "norm": norm, **with_head(table[:2])},
    )
    found = vocabulary.cut(settings, params, 2)
    assert found[0] == fewer[0]
    jax.tree.map(np.testing.assert_array_equal, found[1], fewer[1])
    more, found = vocabulary.extend(settings, params, 6, KEY)
    assert more == dataclasses.replace(settings, vocab_size=6)
    tables = [found["embedding"], *([-found["head"]["kernel"].T] if name == "llama" else [])]
    for rows, sign, key in zip(tables, (1, -1), jax.random.split(KEY), strict=False):
        fresh = table.mean(axis=0) + sign * 0.1 * table.std(axis=0) * jax.random.normal(key, (2, 3))
        np.testing.assert_allclose(rows, np.concatenate([table, fresh]), rtol=1e-5)
    said = "^a vocabulary of 3 tokens is smaller than the model's, which has 4$"
    with pytest.raises(UserError, match=said):
        vocabulary.extend(settings, params, 3, KEY)
