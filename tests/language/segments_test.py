"""What is written in segments, with ended prompts left out between them, is what one loop writes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.language import generation
from motif_jax.language.sampling import Limits, Sampling
from motif_jax.language.segments import Segments
from tests.language import recipes

TOKENS = np.concatenate([recipes.tokens(), recipes.tokens()[:1, ::-1]]).astype(np.int32)
VALID = np.concatenate([recipes.mask("right"), recipes.mask("none")[:1]])
KEY = jax.random.key(2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_segments_write_what_one_loop_writes(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    sampling = Sampling(temperature=1.3)

    def whole(params: Any) -> Any:
        return generation.generate(model, params, TOKENS, VALID, KEY, limits, sampling, branches=2)

    limits = Limits(12, tuple(range(3, 20)))
    written = jax.jit(whole)(params)
    assert np.asarray(written.ended).all(axis=1).sum() >= 2, "too few end early for this to say anything"
    segments = Segments(model, segment=3)
    sizes: list[int] = []
    narrow = segments._narrow

    def watched(running: Any, ended: np.ndarray, places: np.ndarray) -> Any:
        picked, left = narrow(running, ended, places)
        sizes.append(len(picked.ended))
        return picked, left

    segments._narrow = watched  # type: ignore[method-assign]
    found = segments.write(params, TOKENS, VALID, KEY, limits, sampling, branches=2)
    valid = np.asarray(written.valid)
    np.testing.assert_array_equal(found.valid, valid)
    np.testing.assert_array_equal(found.tokens[valid], np.asarray(written.tokens)[valid])
    np.testing.assert_allclose(found.log_probs, written.log_probs, rtol=1e-4, atol=1e-5)
    assert min(sizes) < len(TOKENS), "no prompt was left out"


@pytest.mark.slow
def test_texts_end_by_what_they_say_and_draws_are_a_texts_own(loaded: Any) -> None:
    model, params = loaded("gpt2")
    segments = Segments(model, segment=2)
    limits, sampling = Limits(8, ()), Sampling()
    free = segments.write(params, TOKENS, VALID, KEY, limits, sampling)
    assert free.valid.all()
    last = free.tokens[1, 0, 2:4].tolist()
    found = segments.write(
        params, TOKENS, VALID, KEY, limits, sampling, ends=lambda tokens: tokens[-2:] == last
    )
    assert found.valid[1, 0].sum() == 4
    others = [0, 2, 3]
    assert (found.valid[others].sum(axis=-1) > 4).all()
    np.testing.assert_array_equal(found.tokens[found.valid], free.tokens[found.valid])
    # One prompt by itself, with the key that it had among the others.
    keys = jax.random.split(KEY, (len(TOKENS), 1))
    alone = segments.write(params, TOKENS[2:3], VALID[2:3], keys[2:3], limits, sampling)
    np.testing.assert_array_equal(alone.tokens[0], free.tokens[2])
