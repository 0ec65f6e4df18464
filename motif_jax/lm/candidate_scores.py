"""Turns a language model's logits over candidate texts into the logits of a policy, in three
published forms.

Source: Carta et al. 2023 (GLAM), and the code of its releases, which differ.
"""

from __future__ import annotations

import chex
import jax.numpy as jnp
from jax import Array

from motif_jax.envs.spec import MASKED

# The paper's: the sum of the tokens' log-probabilities.
LOG_PROBABILITY = "log_probability"
# The released code's since May 2023 (`compat.glam_raw_logit_score`): the sum of their logits.
RAW_LOGIT = "raw_logit"
# The first release's (`compat.glam_scaled_probability_score`): the product of their probabilities,
# over the candidates' greatest. These numbers, at most 1, are logits: the policy is their softmax.
SCALED_PROBABILITY = "scaled_probability"
FORMS = (LOG_PROBABILITY, RAW_LOGIT, SCALED_PROBABILITY)
# Where no probability reached 1e-45, the published code made all candidates equally likely. This is
# its logarithm: some processors round numbers as small as 1e-45 to zero.
_LEAST_LOG_PROBABILITY = -103.28


def candidate_scores(
    logit: Array,
    log_normaliser: Array,
    valid: Array,
    form: str = LOG_PROBABILITY,
    *,
    by_length: bool = False,
    pad_plus_one: bool = False,
    scored: Array | None = None,
) -> Array:
    """Scores of K candidates, the logits of a policy over them.

    Args:
      logit: float32 [..., K, T], the model's logit of each token of a candidate.
      log_normaliser: float32 [..., K, T], the logarithm of the sum of all exponentiated logits at
        that token.
      valid: bool [..., K, T], False for padding. A candidate without any token is padding, too.
      form: one of `FORMS`.
      by_length: divides sums by the number of tokens.
      pad_plus_one: `compat.glam_pad_plus_one`: adds 1 for each token of padding.
      scored: bool [..., K, T], False for tokens that are not the candidate's but the end of its
        prompt; None: all are the candidate's.

    Returns:
      float32 [..., K]; `MASKED` for candidates without tokens.
    """
    chex.assert_equal_shape([logit, log_normaliser, valid])
    token_scores = _token_scores(logit, log_normaliser, form)
    counted = valid if scored is None else valid & scored
    score = jnp.sum(jnp.where(counted, token_scores, 0.0), axis=-1)
    if by_length:
        score = score / jnp.maximum(jnp.sum(counted, axis=-1), 1)
    if pad_plus_one:
        # The published mask gives 1 to padding, as suits a product of probabilities; a sum of
        # logits grows by it.
        score = score + jnp.sum(~valid, axis=-1)
    is_candidate = jnp.any(valid, axis=-1)
    # No -inf, of which a softmax over candidates that are all padding would be NaN.
    score = jnp.where(is_candidate, score, MASKED)
    if form != SCALED_PROBABILITY:
        return score
    # p / max p of all candidates, so that the best one has 1.
    best = jnp.max(score, axis=-1, keepdims=True)
    # Computed in logarithms, so that there is a gradient where the probabilities would be rounded
    # to 0.
    scaled = jnp.where(best < _LEAST_LOG_PROBABILITY, 1.0, jnp.exp(score - best))
    return jnp.where(is_candidate, scaled, MASKED)


def _token_scores(logit: Array, log_normaliser: Array, form: str) -> Array:
    """What is summed over a candidate's tokens; of the shape of `logit`."""
    if form == RAW_LOGIT:
        return logit
    if form in (LOG_PROBABILITY, SCALED_PROBABILITY):
        return logit - log_normaliser
    raise ValueError(f"score {form!r} is not one of {', '.join(FORMS)}")
