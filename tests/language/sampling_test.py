"""Draws of tokens; decoding_test has the filters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language.sampling import Sampling, draw, filtered, token_log_probs

LOGITS = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32) * 2


@pytest.mark.slow
def test_draws_have_the_filtered_distribution() -> None:
    sampling = Sampling(temperature=0.7, top_k=4)
    row = jnp.broadcast_to(jnp.asarray(LOGITS[0]), (20_000, 12))
    tokens, log_probs = draw(jax.random.key(1), row, sampling)
    expected = np.asarray(jax.nn.softmax(filtered(jnp.asarray(LOGITS[0]), sampling)))
    np.testing.assert_allclose(np.bincount(tokens, minlength=12) / 20_000, expected, atol=0.02)
    np.testing.assert_allclose(np.exp(log_probs), expected[np.asarray(tokens)], rtol=1e-5)


def test_greedy_takes_the_most_likely_and_says_its_probability() -> None:
    tokens, log_probs = draw(jax.random.key(0), jnp.asarray(LOGITS), Sampling(greedy=True))
    np.testing.assert_array_equal(tokens, LOGITS.argmax(-1))
    np.testing.assert_allclose(log_probs, token_log_probs(jnp.asarray(LOGITS), tokens))


def test_filters_keep_as_many_as_they_say_and_by_themselves_all() -> None:
    logits = jnp.log(jnp.array([[0.1, 0.4, 0.2, 0.3]]))
    np.testing.assert_array_equal(filtered(logits, Sampling()), logits)
    for how, kept in (
        ({"top_k": 1}, "0100"), ({"top_k": 3}, "0111"), ({"top_k": 4}, "1111"), ({"top_k": 9}, "1111"),
        ({"top_p": 0.39}, "0100"), ({"top_p": 0.41}, "0101"), ({"top_p": 0.89}, "0111"), ({"top_p": 0.91}, "1111"),
    ):  # fmt: skip
        found = filtered(logits, Sampling(**how))[0]
        assert "".join("01"[int(x)] for x in jnp.isfinite(found)) == kept
        np.testing.assert_array_equal(jnp.where(jnp.isfinite(found), found, logits[0]), logits[0])
