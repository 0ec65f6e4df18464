"""Rows for more tokens, tied and free."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from motif_jax.lm import config, init_model
from tests.lm import recipes

KEY = jax.random.key(0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_rows_are_cut_or_added_up_to_the_given_number(name: str) -> None:
    settings = dataclasses.replace(config.parse(recipes.CONFIGS[name]), vocab_size=4)
    table = np.arange(12.0).reshape(4, 3)
    norm = np.ones(1)
    with_head = lambda rows: {} if name == "gpt2" else {"head": {"kernel": -rows.T}}  # noqa: E731
    params = {"embedding": table, "norm": norm, **with_head(table)}
    for unchanged in (
        init_model.cut_vocabulary(settings, params, 4),
        init_model.extend_vocabulary(settings, params, 4, KEY),
    ):
        assert unchanged == (settings, params)
    fewer, shortened = init_model.cut_vocabulary(settings, params, 2)
    assert fewer == dataclasses.replace(settings, vocab_size=2)
    left = {"embedding": table[:2], "norm": norm, **with_head(table[:2])}
    jax.tree.map(np.testing.assert_array_equal, shortened, left)
    more, extended = init_model.extend_vocabulary(settings, params, 6, KEY)
    assert more == dataclasses.replace(settings, vocab_size=6)
    tables = [extended["embedding"], *([-extended["head"]["kernel"].T] if name == "llama" else [])]
    for rows, sign, key in zip(tables, (1, -1), jax.random.split(KEY), strict=False):
        fresh = table.mean(axis=0) + sign * 0.1 * table.std(axis=0) * jax.random.normal(key, (2, 3))
        np.testing.assert_allclose(rows, np.concatenate([table, fresh]), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_new_rows_begin_at_those_of_a_token(name: str) -> None:
    settings = dataclasses.replace(config.parse(recipes.CONFIGS[name]), vocab_size=4)
    table = np.arange(12.0).reshape(4, 3)
    params = {"embedding": table, "head": {"kernel": -table.T}}

    _, extended = init_model.extend_vocabulary(settings, params, 6, KEY, like=3)

    tables = [(extended["embedding"], table)]
    if not settings.tied:
        tables.append((extended["head"]["kernel"].T, -table))
    for rows, old in tables:
        np.testing.assert_array_equal(rows[:4], old)
        # Noise has a tenth of the table's spread.
        np.testing.assert_allclose(
            rows[4:], np.tile(old[3], (2, 1)), atol=0.5 * old.std(axis=0).max()
        )
        assert (np.asarray(rows[4:]) != old[3]).all()
