"""Draws of tokens; decoding_test has the filters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language.sampling import Sampling, draw, filtered, token_log_probs


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


def test_filters_keep_as_many_as_they_say_and_by_themselves_all() -> None:
    logits = jnp.log(jnp.array([[0.1, 0.4, 0.2, 0.3]]))
    np.testing.assert_array_equal(filtered(logits, Sampling()), logits)
    for how, kept in (
        ({"top_k": 1}, "0100"),
        ({"top_k": 3}, "0111"),
        ({"top_k": 4}, "1111"),
        ({"top_k": 9}, "1111"),
        ({"top_p": 0.39}, "0100"),
        ({"top_p": 0.41}, "0101"),
        ({"top_p": 0.89}, "0111"),
        ({"top_p": 0.91}, "1111"),
    ):
        found = filtered(logits, Sampling(**how))[0]
        assert "".join("01"[int(x)] for x in jnp.isfinite(found)) == kept
        np.testing.assert_array_equal(jnp.where(jnp.isfinite(found), found, logits[0]), logits[0])
