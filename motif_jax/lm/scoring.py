"""Scores candidates after a prompt, which is run once in the forward pass and in the gradient, and
turns a model's logits over candidates into the logits of a policy, in three published forms.

Source of the forms: Carta et al. 2023 (GLAM), and the code of its releases, which differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array

from motif_jax.envs.spec import MASKED
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.network import States
from motif_jax.nets import distributions

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


class CandidateScores(NamedTuple):
    """A model's scores of candidates."""

    total: jax.Array  # float32 [B, N], by default the log-probability of each candidate
    # float32 [B, N, S], log-probabilities of tokens, 0 for padding and for the prompt's
    tokens: jax.Array
    # [B, D], the states after the last norm that predict the candidates' first tokens
    states: jax.Array


def score(
    model: LanguageModel,
    params: Any,
    prompt: jax.Array,
    prompt_valid: jax.Array,
    candidates: jax.Array,
    candidate_valid: jax.Array,
    by_length: bool = False,
    form: str = LOG_PROBABILITY,
    pad_plus_one: bool = False,
    starts: jax.Array | None = None,
) -> CandidateScores:
    """Scores candidates, which share the prompt's keys and values.

    Args:
      prompt, prompt_valid: int32 and bool [B, T], padded on either side.
      candidates, candidate_valid: int32 and bool [B, N, S], padded on the right, or [N, S] where
        all prompts have the same.
      by_length: divide each total by the candidate's number of tokens.
      form, pad_plus_one: see `candidate_scores`.
      starts: int32 [B, N], the number of tokens at the beginning of each candidate's row that are
        the prompt's and not scored (`joint_tokens.JointRows`); None: there are none.
    """
    chex.assert_equal_shape([prompt, prompt_valid])
    chex.assert_equal_shape([candidates, candidate_valid])
    shape = (len(prompt), *candidates.shape[-2:])
    candidates = jnp.broadcast_to(candidates, shape)
    candidate_valid = jnp.broadcast_to(candidate_valid, shape)
    # Prompt and candidates are two runs of the blocks, which share the stacks.
    params = model.prepared(params)

    first_states, later_states = _predicting_states(
        model, params, prompt, prompt_valid, candidates, candidate_valid
    )
    logit, normaliser = _logits_of_tokens(model, params, first_states, later_states, candidates)
    scored = jnp.ones_like(candidate_valid)
    if starts is not None:
        # The prompt's last tokens where another candidate has them otherwise: read, not scored.
        scored = jnp.arange(shape[-1]) >= starts[..., None]
    total = candidate_scores(
        logit,
        normaliser,
        candidate_valid,
        form,
        by_length=by_length,
        pad_plus_one=pad_plus_one,
        scored=scored,
    )
    log_probs = jnp.where(candidate_valid & scored, logit - normaliser, 0.0)
    return CandidateScores(total, log_probs, first_states)


def _predicting_states(
    model: LanguageModel,
    params: Any,
    prompt: jax.Array,
    prompt_valid: jax.Array,
    candidates: jax.Array,
    candidate_valid: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The states after the last norm that predict candidates' tokens: [B, D] of the first,
    [B, N, S - 1, D] of the later ones.

    All candidates of a prompt, int32 and bool [B, N, S], have the same state before their first
    token.
    """
    prompt_states, encoded_prompt = model.prefill(params, prompt, prompt_valid)
    # A candidate's last token predicts nothing that is scored.
    inputs = candidates[..., :-1]
    valid = candidate_valid[..., :-1]
    if not model.config.encoder_layers:
        # The prompt's last token predicts the first token, so that the candidates' own states are
        # of the later ones.
        states, _ = model.extend(params, encoded_prompt, inputs, valid)
        return last_state(prompt_states, prompt_valid).after, states.after
    start = jnp.full((*candidates.shape[:2], 1), model.config.start_id, candidates.dtype)
    inputs = jnp.concatenate([start, inputs], axis=-1)
    valid = jnp.concatenate([jnp.ones_like(start, bool), valid], axis=-1)
    states, _ = model.extend(params, encoded_prompt, inputs, valid)
    # The start token's state is the same for all candidates.
    return states.after[:, 0, 0], states.after[:, :, 1:]


def _logits_of_tokens(
    model: LanguageModel,
    params: Any,
    first_states: jax.Array,
    later_states: jax.Array,
    candidates: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The logit of each token of candidates int32 [B, N, S], and the log of its normaliser; float32
    [B, N, S] each.

    The log-probability of a token is the difference. States are those of `_predicting_states`.
    """
    # One state predicts the first tokens of all candidates: one row of logits a prompt.
    first_logits = model.logits(params, first_states)[:, None]
    # [B, N, 1] becomes [B, 1, N], to pick from the one row [B, 1, V], and back.
    first_tokens = candidates[..., :1].swapaxes(1, 2)
    first_logit = jnp.take_along_axis(first_logits, first_tokens, axis=-1).swapaxes(1, 2)
    first_normaliser = jax.nn.logsumexp(first_logits, axis=-1, keepdims=True)
    first_normaliser = jnp.broadcast_to(first_normaliser, first_logit.shape)

    later_logits = model.logits(params, later_states)
    later_logit = jnp.take_along_axis(later_logits, candidates[..., 1:, None], axis=-1)[..., 0]
    later_normaliser = jax.nn.logsumexp(later_logits, axis=-1)

    logit = jnp.concatenate([first_logit, later_logit], axis=-1)
    normaliser = jnp.concatenate([first_normaliser, later_normaliser], axis=-1)
    return logit, normaliser


def token_log_probs(
    model: LanguageModel,
    params: Any,
    prompt: jax.Array,
    prompt_valid: jax.Array,
    text: jax.Array,
    text_valid: jax.Array,
    chunk: int = 256,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities of texts int32 [B, S], padded on the right, and entropies (nats) of the
    predictions, float32 [B, S].

    The prompt int32 [B, T] is an encoder's input; a decoder alone ignores it, and does not predict
    its first token: ignore the numbers there. `chunk` tokens' logits are in memory at once.
    """
    chex.assert_equal_shape([text, text_valid])
    params = model.prepared(params)
    if model.config.encoder_layers:
        _, encoded_prompt = model.prefill(params, prompt, prompt_valid)
        # Its decoder begins every text with the start token, so that the first token is predicted,
        # too.
        start = jnp.full((len(text), 1), model.config.start_id, text.dtype)
        inputs = jnp.concatenate([start, text[:, :-1]], axis=1)[:, None]
        valid = jnp.concatenate([jnp.ones_like(start, bool), text_valid[:, :-1]], axis=1)[:, None]
        decoder_states, _ = model.extend(params, encoded_prompt, inputs, valid)
        after = decoder_states.after[:, 0]
    else:
        states, _ = model.prefill(params, text, text_valid)
        # A state predicts the next token; nothing predicts the first one.
        after = jnp.concatenate([states.after[:, :1], states.after[:, :-1]], axis=1)

    def measure(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        row_states, row_tokens = rows
        logits = model.logits(params, row_states)
        log_probs = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_probs, row_tokens[:, None], axis=-1)[:, 0]
        return chosen, distributions.categorical_entropy(logits)

    rows = (after.reshape(-1, after.shape[-1]), text.reshape(-1))
    log_probs, entropies = in_chunks(measure, rows, chunk)
    return log_probs.reshape(text.shape), entropies.reshape(text.shape)


def last_state(states: States, valid: jax.Array) -> States:
    """The states [B, D] of each row's last valid token, of states [B, T, D] and bool [B, T]."""
    chex.assert_rank(valid, 2)
    # The first from the right, since padding may stand on either side.
    last = valid.shape[1] - 1 - jnp.argmax(valid[:, ::-1], axis=1)

    def take(leaf: jax.Array) -> jax.Array:
        return jnp.take_along_axis(leaf, last[:, None, None], axis=1)[:, 0]

    return States(take(states.before), take(states.after))


def in_chunks(function: Callable[..., Any], rows: Any, chunk: int | None) -> Any:
    """Computes `function(rows)` a chunk at a time, so that memory never holds the logits of a whole
    batch; the backward pass computes each chunk again.

    Logits are [tokens, vocabulary]: 8 texts of 2,048 tokens with 128,256 entries take 8 GB in
    float32, and as much again in the gradient. A chunk of 1,024 tokens takes 0.5 GB.

    The function maps a tree of arrays [R, ...] to a tree of arrays [R, ...], row by row; parameters
    that it closes over get gradients. `chunk` None: all rows at once, and nothing is computed
    again.
    """
    leaves = jax.tree.leaves(rows)
    chex.assert_equal_shape_prefix(leaves, 1)
    count = leaves[0].shape[0]
    if chunk is None or chunk >= count:
        return function(rows)
    chunks = math.ceil(count / chunk)

    def split(leaf: jax.Array) -> jax.Array:
        # A row that exists fills up the last chunk, so that no NaN can come of the padding alone.
        padding = jnp.broadcast_to(leaf[-1:], (chunks * chunk - count, *leaf.shape[1:]))
        return jnp.concatenate([leaf, padding]).reshape(chunks, chunk, *leaf.shape[1:])

    def join(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(chunks * chunk, *leaf.shape[2:])[:count]

    # `map` alone would keep each chunk's logits for the backward pass.
    results = jax.lax.map(jax.checkpoint(function), jax.tree.map(split, rows))
    return jax.tree.map(join, results)
