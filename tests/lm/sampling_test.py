"""Draws of tokens; decoding_test has the filters."""

from __future__ import annotations

import jax
import numpy as np

from motif_jax.lm.sampling import Sampling, draw, filtered, token_log_probs


def test_a_draw_says_its_probability_and_greedy_takes_the_most_likely() -> None:
    how, key = Sampling(temperature=0.7, top_k=4), jax.random.key(0)
    logits = 2 * jax.random.normal(jax.random.key(3), (5, 12))
    left = filtered(logits, how)
    drawn = jax.random.categorical(key, left)
    assert (drawn != logits.argmax(-1)).any()
    for given, wanted, among in ((Sampling(greedy=True), logits.argmax(-1), logits), (how, drawn, left)):
        tokens, log_probs = draw(key, logits, given)
        np.testing.assert_array_equal(tokens, wanted)
        np.testing.assert_allclose(log_probs, token_log_probs(among, tokens))
