"""Texts written in segments, with ended prompts dropped between them, are those of one loop."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.lm import generation
from motif_jax.lm.generation import Limits, Sampling, Segments
from tests.lm import recipes
from tests.sets import extra

pytestmark = pytest.mark.slow
TOKENS = np.concatenate([recipes.tokens(), recipes.tokens()[:1, ::-1]]).astype(np.int32)
VALID = np.concatenate([recipes.mask("right"), recipes.mask("none")[:1]])


@pytest.mark.parametrize("name", ["gpt2", extra("t5")])
def test_segments_write_what_one_loop_writes(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    key = jax.random.key(2)
    limits = Limits(12, stops=tuple(range(3, 20)))
    sampling = Sampling(temperature=1.3)
    run = jax.jit(generation.generate, static_argnums=(0, 5, 6), static_argnames="branches")
    expected = run(model, params, TOKENS, VALID, key, limits, sampling, branches=2)
    # Two of the four prompts end early at least, so that the program shrinks.
    assert np.asarray(expected.ended).all(axis=1).sum() >= 2

    written = Segments(model, segment=3).write(
        params, TOKENS, VALID, key, limits, sampling, branches=2
    )

    valid = np.asarray(expected.valid)
    np.testing.assert_array_equal(written.valid, valid)
    np.testing.assert_array_equal(written.tokens[valid], np.asarray(expected.tokens)[valid])
    np.testing.assert_allclose(written.log_probs, expected.log_probs, rtol=1e-4, atol=1e-5)


@pytest.mark.extra
def test_prompts_whose_texts_have_ended_are_dropped_between_segments(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, params = loaded("gpt2")
    limits = Limits(12, stops=tuple(range(3, 20)))
    segments = Segments(model, segment=3)

    sizes = []
    rows_of = generation.rows_of

    def record(cache: Any, index: Any) -> Any:
        sizes.append(len(index))
        return rows_of(cache, index)

    monkeypatch.setattr(generation, "rows_of", record)
    # A program that another test has traced would not call it.
    jax.clear_caches()

    segments.write(
        params, TOKENS, VALID, jax.random.key(2), limits, Sampling(temperature=1.3), branches=2
    )

    assert sizes
    assert max(sizes) < len(TOKENS)
