"""Texts that grow turn by turn are what the whole text is when it is run at once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language.sampling import Limits, Sampling
from motif_jax.language.session import DecodeSession
from motif_jax.language.tokens import padded
from motif_jax.support.errors import UserError
from tests.language import models, recipes

GREEDY, KEY = Sampling(greedy=True), jax.random.key(0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    return functools.cache(lambda name: models.load(models.write(folder / name, name)))


def turn(seed: int, *lengths: int) -> list[list[int]]:
    draws = np.random.default_rng(seed)
    return [draws.integers(3, recipes.VOCAB, length).tolist() for length in lengths]


@functools.cache
def last_of(model: Any) -> Any:
    """The program of `expected`, compiled once."""

    def run(params: Any, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        states, _ = model.prefill(params, tokens, valid)
        rows, last = jnp.arange(len(tokens)), valid.sum(axis=1) - 1
        return model.logits(params, states.after[rows, last]), states.before[rows, last]

    return jax.jit(run)


def expected(model: Any, params: Any, texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and states of the last tokens, every text run from its start."""
    # As many rows whichever are asked for, so that there is one program.
    tokens, valid = padded([*texts, *[[3]] * (3 - len(texts))], 48)
    logits, before = last_of(model)(params, tokens, valid)
    return np.asarray(logits)[: len(texts)], np.asarray(before)[: len(texts)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_text_that_grows_is_the_whole_text(loaded: Any, name: str) -> None:
    model, params = loaded(name)
    # So small that padding is squeezed out and the cache grows on the way.
    session = DecodeSession(model, params, batch=3, capacity=20)
    texts: list[list[int]] = [[], [], []]
    # One text gets nothing in the second turn, another writes nothing in the third.
    for number, (lengths, goes_on) in enumerate(
        [((5, 2, 7), (True, True, True)), ((3, 0, 1), (True, True, True)), ((1, 6, 2), (True, False, True))]
    ):
        more = turn(number, *lengths)
        ends = session.read(more)
        texts = [text + row for text, row in zip(texts, more, strict=True)]
        logits, before = expected(model, params, texts)
        np.testing.assert_allclose(ends.logits, logits, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(ends.states.before, before, rtol=1e-4, atol=1e-4)
        stop = int(logits[0].argmax()) if number == 1 else 60
        written = session.write(KEY, Limits(4, (stop,)), GREEDY, goes_on)
        for row, (text, new, good) in enumerate(zip(texts, written, goes_on, strict=True)):
            assert bool(new) == good
            assert not new or len(new) == 4 or new[-1] == stop
            if number == 1 and row == 0:
                assert new == [stop], "this one ends at once, the others do not"
            for token in new:
                assert token == expected(model, params, [text])[0][0].argmax()
                text.append(token)
        assert session.texts == texts
        assert session.ends is not None
        np.testing.assert_allclose(
            session.ends.logits, expected(model, params, texts)[0], rtol=1e-4, atol=1e-4
        )
    assert session._cache.valid.shape[2] > 20


def test_what_a_session_cannot_do_is_told(loaded: Any) -> None:
    with pytest.raises(UserError, match="t5 model keeps nothing"):
        DecodeSession(*loaded("t5"), batch=1)
    session = DecodeSession(*loaded("gpt2"), batch=2)
    with pytest.raises(UserError, match="nothing was read"):
        session.write(KEY, Limits(2, ()), GREEDY)
    with pytest.raises(UserError, match="no tokens yet"):
        session.read([[3], []])
    session.read([[3], [4, 5]])
    with pytest.raises(UserError, match="text 1 of the session: 52 tokens do not fit a model of 48"):
        session.read([[], [7] * 50])
    with pytest.raises(UserError, match="48 positions"):
        session.write(KEY, Limits(47, ()), GREEDY)
    assert session.texts == [[3], [4, 5]]
