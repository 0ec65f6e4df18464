"""Scores of candidate actions in the published forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm.scoring import LOG_PROBABILITY, RAW_LOGIT, SCALED_PROBABILITY, candidate_scores
from tests.conftest import load_golden


@pytest.mark.parametrize("number", range(3))
def test_raw_logits_with_one_for_padding_equal_the_released_score(number):
    case = load_golden("glam_ppo.json")["scoring_encoder_decoder"][number]
    logits = np.array(case["logits"], np.float32)[:, :-1]
    # After the start token, which is the padding token too.
    tokens = np.array(case["decoder_input_ids"])[:, 1:]
    logit = np.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    normaliser = jax.nn.logsumexp(logits, axis=-1)

    score = candidate_scores(logit, normaliser, tokens != 0, RAW_LOGIT, pad_plus_one=True)
    without_padding = candidate_scores(logit, normaliser, tokens != 0, RAW_LOGIT)

    np.testing.assert_allclose(score, case["score"], rtol=1e-5)
    np.testing.assert_allclose(score - without_padding, (tokens == 0).sum(-1), rtol=1e-5)


def two_candidates():
    """Probabilities 1/2 x 1/4, and 1/8 with a token of padding."""
    logit = jnp.log(jnp.array([[0.5, 0.25], [0.125, 9.0]])) + 3.0
    return logit, jnp.full((2, 2), 3.0), jnp.array([[True, True], [True, False]])


def test_log_probabilities_add_up_and_padding_adds_nothing():
    score = candidate_scores(*two_candidates())

    np.testing.assert_allclose(score, np.log([0.125, 0.125]), rtol=1e-6)


def test_scores_by_length_are_means_over_tokens():
    score = candidate_scores(*two_candidates(), LOG_PROBABILITY, by_length=True)

    np.testing.assert_allclose(score, [np.log(0.125) / 2, np.log(0.125)], rtol=1e-6)


def test_scaled_probabilities_are_relative_to_the_best():
    logit, normaliser, valid = two_candidates()

    score = candidate_scores(logit.at[1, 0].add(-20.0), normaliser, valid, SCALED_PROBABILITY)

    np.testing.assert_allclose(score, [1.0, np.exp(-20.0)], rtol=1e-4)


def test_scaled_probabilities_that_all_vanish_are_equal():
    logit, normaliser, valid = two_candidates()

    score = candidate_scores(
        logit.at[1, 0].add(-20.0) - 300.0, normaliser, valid, SCALED_PROBABILITY
    )

    np.testing.assert_array_equal(score, [1.0, 1.0])
