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
def test_texts_end_by_what_they_say(loaded: Any) -> None:
    model, params = loaded("gpt2")
    segments = Segments(model, segment=2)
    limits, sampling = Limits(8, ()), Sampling()
    free = segments.write(params, TOKENS, VALID, KEY, limits, sampling)
    assert free.valid.all()
    last = free.tokens[1, 0, 2:4].tolist()
    ends = lambda tokens: tokens[-2:] == last  # noqa: E731
    found = segments.write(params, TOKENS, VALID, KEY, limits, sampling, ends=ends)
    assert found.valid[1, 0].sum() == 4
    assert (found.valid[[0, 2, 3]].sum(axis=-1) > 4).all()
    np.testing.assert_array_equal(found.tokens[found.valid], free.tokens[found.valid])
