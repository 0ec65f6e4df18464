"""Draws of tokens, and which tokens the filters leave."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm.generation import Sampling, draw, filtered, token_log_probs

KEY = jax.random.key(0)
LOGITS = 2 * jax.random.normal(jax.random.key(3), (5, 12))


def test_a_draw_is_of_the_filtered_logits() -> None:
    sampling = Sampling(temperature=0.7, top_k=4)

    tokens, log_probs = draw(KEY, LOGITS, sampling)

    filtered_logits = filtered(LOGITS, sampling)
    np.testing.assert_array_equal(tokens, jax.random.categorical(KEY, filtered_logits))
    np.testing.assert_allclose(log_probs, token_log_probs(filtered_logits, tokens))
    assert (tokens != LOGITS.argmax(-1)).any()


def test_greedy_takes_the_most_likely_token() -> None:
    tokens, log_probs = draw(KEY, LOGITS, Sampling(greedy=True))

    np.testing.assert_array_equal(tokens, LOGITS.argmax(-1))
    np.testing.assert_allclose(log_probs, token_log_probs(LOGITS, tokens))


PROBABILITIES = [0.125, 0.5, 0.25, 0.125]


def kept_tokens(sampling: Sampling) -> list[int]:
    """The tokens of `PROBABILITIES` that may be drawn."""
    logits = filtered(jnp.log(jnp.array(PROBABILITIES)), sampling)
    return np.flatnonzero(np.isfinite(logits)).tolist()


@pytest.mark.parametrize(
    ("top_k", "tokens"),
    [(0, [0, 1, 2, 3]), (1, [1]), (2, [1, 2]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3])],
)
def test_top_k_keeps_the_k_most_likely_tokens(top_k: int, tokens: list[int]) -> None:
    assert kept_tokens(Sampling(top_k=top_k)) == tokens


@pytest.mark.parametrize(
    ("top_p", "tokens"),
    # Tokens that sum to exactly top_p are enough.
    [(0.01, [1]), (0.5, [1]), (0.51, [1, 2]), (0.75, [1, 2]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_fewest_tokens_that_sum_to_it(top_p: float, tokens: list[int]) -> None:
    assert kept_tokens(Sampling(top_p=top_p)) == tokens


def test_top_p_counts_the_probabilities_that_top_k_leaves() -> None:
    # Of 0.5 and 0.25 the first alone is two thirds.
    assert kept_tokens(Sampling(top_k=2, top_p=0.6)) == [1]


def test_a_temperature_divides_the_logits() -> None:
    np.testing.assert_allclose(filtered(LOGITS, Sampling(temperature=0.5)), 2 * LOGITS, rtol=1e-6)
