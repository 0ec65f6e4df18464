"""Scores candidates after a prompt, which is run once in the forward pass and in the gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.blocks import States
from motif_jax.lm.candidate_scores import LOG_PROBABILITY, candidate_scores
from motif_jax.lm.chunks import in_chunks
from motif_jax.lm.model import LanguageModel
from motif_jax.nets import categorical


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
        return chosen, categorical.entropy(logits)

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
