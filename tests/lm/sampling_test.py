"""Draws of tokens; decoding_test has the filters."""

from __future__ import annotations

import jax
import numpy as np

from motif_jax.lm.sampling import Sampling, draw, filtered, token_log_probs

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
