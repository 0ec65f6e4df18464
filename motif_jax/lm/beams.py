"""Beam search in one compiled loop, by the rules of ILQL or of transformers.

ILQL: a beam that has ended stays among the K, its probability unchanged.

transformers' `generate` (`finishes_apart`): of (1 + stops) K candidates, at least 2 K, the best K
without a stop token continue. A candidate that ends is finished if it is among the best K; its
score is its log-probability divided by its length. The search of a row stops when no running beam
can beat the worst finished one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.generation import IMPOSSIBLE, Limits, Step, begin, model_step, picked, taken
from motif_jax.lm.model import LanguageModel


class Beams(NamedTuple):
    """The best continuations, best first."""

    tokens: jax.Array  # int32 [B, K, M], padded after the end
    valid: jax.Array  # bool [B, K, M]
    # float32 [B, K], log-probability; with `finishes_apart` divided by the length
    scores: jax.Array
    carry: Any  # of the step; with `finishes_apart` that of the beams that had not ended


class _Texts(NamedTuple):
    """N texts of each row; in `_Search` N is K, in `_Continuations` it may be more."""

    tokens: jax.Array  # int32 [B, N, M]
    length: jax.Array  # int32 [B, N]
    scores: jax.Array  # float32 [B, N]


class _Search(NamedTuple):
    position: jax.Array  # int32 scalar, tokens drawn so far
    carry: Any
    logits: jax.Array  # float [B, K, V], of the next tokens
    # bool [B, K], beams that have ended; with `finishes_apart` rows whose search has
    done: jax.Array
    running: _Texts
    finished: _Texts | None  # with `finishes_apart`: texts that have ended


class _Continuations(NamedTuple):
    """Beams with one more token, best first."""

    parents: jax.Array  # int32 [B, N], the beam that each continues
    drawn: jax.Array  # int32 [B, N], its new token
    alive: jax.Array  # bool [B, N], whether the beam had not ended before this token
    texts: _Texts  # with the new tokens


def search(
    step: Step,
    reorder: Callable[[Any, jax.Array], Any],
    carry: Any,
    logits: jax.Array,
    limits: Limits,
    pad: int = 0,
    ended: jax.Array | None = None,
    finishes_apart: bool = False,
) -> Beams:
    """Searches K beams of each row, with `finishes_apart` by the rules of transformers.

    Args:
      step, carry: see `generation.write`.
      reorder: (carry, index int32 [B, K]) -> the carry whose k-th beam is beam index[b, k].
      logits: [B, K, V] of the first tokens, the same for the beams of a row.
      ended: bool [B, K], True for whole rows without a search; None: all are searched.
    """
    chex.assert_rank(logits, 3)
    _, beams, size = logits.shape
    max_length = limits.max_new_tokens
    stop_tokens = jnp.asarray(limits.stops, jnp.int32)
    width = beams
    if finishes_apart:
        width = min(max(2, 1 + len(limits.stops)) * beams, beams * size)
    # A beam that has ended goes on with the padding token alone, at no cost.
    padding_log_probs = jnp.where(jnp.arange(size) == pad, 0.0, IMPOSSIBLE)

    def body(state: _Search) -> _Search:
        continuations = _continue(state, padding_log_probs, width)
        stops = jnp.isin(continuations.drawn, stop_tokens)
        done = ~continuations.alive | stops
        finished = state.finished
        if finished is not None:
            finished = _finish(finished, continuations, stops, beams)
            continuations = _best_unstopped(continuations, stops, beams)
            scores = continuations.texts.scores
            done = ~continuations.alive | _cannot_improve(finished, scores, state.position + 1)
        parents, drawn, alive, running = continuations
        logits, carry = step(reorder(state.carry, parents), drawn, alive)
        return _Search(state.position + 1, carry, logits, done, running, finished)

    def is_unfinished(state: _Search) -> jax.Array:
        return (state.position < max_length) & ~state.done.all()

    start = _start(carry, logits, max_length, pad, ended, finishes_apart)
    end = jax.lax.while_loop(is_unfinished, body, start)
    texts = end.running
    if end.finished is not None:
        # Texts that reached the longest length without a stop token compete with the finished ones.
        unfinished_scores = jnp.where(end.done, IMPOSSIBLE, texts.scores / max_length)
        texts = _best(end.finished, texts._replace(scores=unfinished_scores))
    valid = jnp.arange(max_length) < texts.length[..., None]
    return Beams(texts.tokens, valid, texts.scores, end.carry)


def _start(
    carry: Any,
    logits: jax.Array,
    max_length: int,
    pad: int,
    ended: jax.Array | None,
    finishes_apart: bool,
) -> _Search:
    """The search before its first token; arguments as of `search`."""
    shape = logits.shape[:2]
    blank = _Texts(
        jnp.full((*shape, max_length), pad, jnp.int32),
        jnp.zeros(shape, jnp.int32),
        jnp.full(shape, IMPOSSIBLE),
    )
    # Beams of a row begin equal: without this each best text would come K times.
    first_scores = jnp.where(jnp.arange(shape[1]) == 0, 0.0, IMPOSSIBLE)
    return _Search(
        position=jnp.zeros((), jnp.int32),
        carry=carry,
        logits=logits,
        done=jnp.zeros(shape, bool) if ended is None else ended,
        running=blank._replace(scores=jnp.broadcast_to(first_scores, shape)),
        finished=blank if finishes_apart else None,
    )


def _continue(state: _Search, padding_log_probs: jax.Array, count: int) -> _Continuations:
    """The `count` best continuations of each row's beams.

    Args:
      padding_log_probs: float32 [V], of the next token of a beam that has ended.
    """
    batch, _, size = state.logits.shape
    log_probs = jax.nn.log_softmax(state.logits.astype(jnp.float32))
    log_probs = jnp.where(state.done[..., None], padding_log_probs, log_probs)
    # [B, K, V] becomes [B, K * V]: the best of all beams of a row together.
    totals = (state.running.scores[..., None] + log_probs).reshape(batch, -1)
    scores, index = jax.lax.top_k(totals, count)
    parents = index // size
    drawn = (index % size).astype(jnp.int32)
    alive = ~taken(state.done, parents, 1)
    texts = _Texts(
        taken(state.running.tokens, parents, 1).at[..., state.position].set(drawn),
        taken(state.running.length, parents, 1) + alive,
        scores,
    )
    return _Continuations(parents, drawn, alive, texts)


def _finish(
    finished: _Texts, continuations: _Continuations, stops: jax.Array, beams: int
) -> _Texts:
    """The best of `finished` and of those among the `beams` best continuations that end now.

    Args:
      stops: bool [B, N], the continuations whose new token is a stop token.
    """
    texts = continuations.texts
    # By transformers' rule: one that ends beyond the best K is neither finished nor continued.
    ends_now = stops & continuations.alive & (jnp.arange(stops.shape[1]) < beams)
    # The length counts the stop token.
    by_length = jnp.where(ends_now, texts.scores / texts.length.astype(jnp.float32), IMPOSSIBLE)
    return _best(finished, texts._replace(scores=by_length))


def _best_unstopped(continuations: _Continuations, stops: jax.Array, count: int) -> _Continuations:
    """The `count` best continuations whose new token is no stop token; `stops` as in `_finish`."""
    parents, drawn, alive, texts = continuations
    # Of (1 + stops) K candidates at most K for each stop token end here: at least K go on.
    scores, order = jax.lax.top_k(jnp.where(stops, IMPOSSIBLE, texts.scores), count)
    return _Continuations(
        taken(parents, order, 1),
        taken(drawn, order, 1),
        taken(alive, order, 1),
        _Texts(taken(texts.tokens, order, 1), taken(texts.length, order, 1), scores),
    )


def _cannot_improve(finished: _Texts, scores: jax.Array, length: jax.Array) -> jax.Array:
    """Whether no running beam can beat the worst finished text of its row, bool [B, 1].

    Args:
      scores: float32 [B, K], log-probabilities of the running beams, best first.
      length: int32 scalar, their number of tokens.
    """
    worst_finished = finished.scores[:, -1:]
    # By its present length, as transformers without early stopping does: a longer text may still
    # score higher, and is not waited for.
    best_running = scores[:, :1] / length.astype(jnp.float32)
    return (worst_finished > IMPOSSIBLE) & (best_running <= worst_finished)


def _best(a: _Texts, b: _Texts) -> _Texts:
    """The best of both, as many as `a` has, best first."""
    tokens = jnp.concatenate([a.tokens, b.tokens], axis=1)
    length = jnp.concatenate([a.length, b.length], axis=1)
    scores = jnp.concatenate([a.scores, b.scores], axis=1)
    scores, index = jax.lax.top_k(scores, a.scores.shape[1])
    return _Texts(taken(tokens, index, 1), taken(length, index, 1), scores)


def beam_search(
    model: LanguageModel,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    limits: Limits,
    beams: int,
) -> Beams:
    """The `beams` best continuations of prompts int32 [B, T] by transformers' rules; see `search`
    and `generation.begin`.
    """
    params = model.prepared(params)
    prompt, cache, logits = begin(model, params, tokens, valid, beams, limits.max_new_tokens)
    step = model_step(model, params, prompt)
    return search(step, picked, cache, logits, limits, model.config.pad_id, finishes_apart=True)
