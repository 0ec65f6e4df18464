"""Scores candidates after a prompt, which is run once in the forward pass and in the gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.candidate_scores import LOG_PROBABILITY, candidate_scores
from motif_jax.lm.chunks import in_chunks
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.network import States


class CandidateScores(NamedTuple):
    """A model's scores of candidates."""

    total: jax.Array  # float32 [B, N], by default the log-probability of each candidate
    tokens: jax.Array  # float32 [B, N, S], log-probabilities of its tokens, 0 for padding
    states: jax.Array  # [B, D], the states after the last norm that predict the candidates' first tokens


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
) -> CandidateScores:
    """Scores candidates, which share the prompt's keys and values.

    Args:
      prompt, prompt_valid: int32 and bool [B, T], padded on either side.
      candidates, candidate_valid: int32 and bool [B, N, S], padded on the right, or [N, S] where all prompts have the same.
      by_length: divide each total by the candidate's number of tokens.
      form, pad_plus_one: see `candidate_scores`.
    """
    chex.assert_equal_shape([prompt, prompt_valid])
    chex.assert_equal_shape([candidates, candidate_valid])
    shape = (len(prompt), *candidates.shape[-2:])
    candidates, candidate_valid = (jnp.broadcast_to(x, shape) for x in (candidates, candidate_valid))
    params = model.prepared(params)
    states, context = model.prefill(params, prompt, prompt_valid)
    before = candidates[..., :-1]
    if model.config.encoder_layers:
        start = jnp.full((*candidates.shape[:2], 1), model.config.start_id, candidates.dtype)
        inputs = jnp.concatenate([start, before], axis=-1)
        valid = jnp.concatenate([jnp.ones_like(start, bool), candidate_valid[..., :-1]], axis=-1)
        after = model.extend(params, context, inputs, valid)[0].after
        first, after = after[:, 0, 0], after[:, :, 1:]
    else:
        first = last_state(states, prompt_valid).after
        after = model.extend(params, context, before, candidate_valid[..., :-1])[0].after
    # One state predicts the first tokens of all candidates: one row of logits a prompt.
    opening = model.logits(params, first)[:, None]
    logits = jnp.take_along_axis(opening, candidates[..., :1].swapaxes(1, 2), axis=-1).swapaxes(1, 2)
    normaliser = jnp.broadcast_to(jax.nn.logsumexp(opening, axis=-1, keepdims=True), logits.shape)
    rest = model.logits(params, after)
    following = jnp.take_along_axis(rest, candidates[..., 1:, None], axis=-1)[..., 0]
    logits = jnp.concatenate([logits, following], axis=-1)
    normaliser = jnp.concatenate([normaliser, jax.nn.logsumexp(rest, axis=-1)], axis=-1)
    how = {"by_length": by_length, "pad_plus_one": pad_plus_one}
    total = candidate_scores(logits, normaliser, candidate_valid, form, **how)
    return CandidateScores(total, jnp.where(candidate_valid, logits - normaliser, 0.0), first)


def look(
    model: LanguageModel,
    params: Any,
    prompt: jax.Array,
    prompt_valid: jax.Array,
    text: jax.Array,
    text_valid: jax.Array,
    chunk: int = 256,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities of texts int32 [B, S], padded on the right, and entropies (nats) of the predictions, float32 [B, S].

    The prompt int32 [B, T] is an encoder's input; a decoder alone ignores it, and does not predict its first token: ignore the numbers
    there. `chunk` tokens' logits are in memory at once.
    """
    chex.assert_equal_shape([text, text_valid])
    params = model.prepared(params)
    if model.config.encoder_layers:
        _, context = model.prefill(params, prompt, prompt_valid)
        first = jnp.full((len(text), 1), model.config.start_id, text.dtype)
        inputs = jnp.concatenate([first, text[:, :-1]], axis=1)[:, None]
        seen = jnp.concatenate([jnp.ones_like(first, bool), text_valid[:, :-1]], axis=1)[:, None]
        after = model.extend(params, context, inputs, seen)[0].after[:, 0]
    else:
        states = model.prefill(params, text, text_valid)[0].after
        after = jnp.concatenate([states[:, :1], states[:, :-1]], axis=1)

    def of_rows(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logs = jax.nn.log_softmax(model.logits(params, rows[0]))
        chosen = jnp.take_along_axis(logs, rows[1][:, None], axis=-1)[:, 0]
        return chosen, -jnp.sum(jnp.exp(logs) * logs, axis=-1)

    found = in_chunks(of_rows, (after.reshape(-1, after.shape[-1]), text.reshape(-1)), chunk)
    return tuple(leaf.reshape(text.shape) for leaf in found)


def last_state(states: States, valid: jax.Array) -> States:
    """The states [B, D] of each row's last valid token, of states [B, T, D] and bool [B, T]."""
    chex.assert_rank(valid, 2)
    last = valid.shape[1] - 1 - jnp.argmax(valid[:, ::-1], axis=1)
    return States(*(jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0] for x in states))
