"""What is written in segments, with ended prompts left out between them, is what one loop writes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from motif_jax.lm import generation
from motif_jax.lm.sampling import Limits, Sampling
from motif_jax.lm.segments import Segments
from tests.lm import recipes

pytestmark = pytest.mark.slow
TOKENS = np.concatenate([recipes.tokens(), recipes.tokens()[:1, ::-1]]).astype(np.int32)
VALID = np.concatenate([recipes.mask("right"), recipes.mask("none")[:1]])


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_segments_write_what_one_loop_writes(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    rows = TOKENS, VALID, jax.random.key(2), Limits(12, tuple(range(3, 20))), Sampling(temperature=1.3)
    run = jax.jit(generation.generate, static_argnums=(0, 5, 6), static_argnames="branches")
    written = run(model, params, *rows, branches=2)
    assert np.asarray(written.ended).all(axis=1).sum() >= 2, "too few end early for this to say anything"
    segments = Segments(model, segment=3)
    segments._pick = pick = Mock(wraps=segments._pick)  # type: ignore[method-assign]
    found = segments.write(params, *rows, branches=2)
    valid = np.asarray(written.valid)
    np.testing.assert_array_equal(found.valid, valid)
    np.testing.assert_array_equal(found.tokens[valid], np.asarray(written.tokens)[valid])
    np.testing.assert_allclose(found.log_probs, written.log_probs, rtol=1e-4, atol=1e-5)
    assert pick.called, "no prompt was left out"
