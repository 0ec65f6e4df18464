"""Beam search in one compiled loop, by the rules of ILQL or of transformers.

ILQL: a beam that has ended stays among the K, its probability unchanged.

transformers' `generate` (`apart`): of (1 + stops) K candidates, at least 2 K, the best K without a stop token continue. A candidate
that ends is kept if it is among the best K; its score is its log-probability divided by its length. The search of a row stops when
no running beam can beat the worst kept one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.caches import picked, taken
from motif_jax.lm.generation import Step, begin, model_step
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.sampling import IMPOSSIBLE, Limits


class Beams(NamedTuple):
    """The best continuations, best first."""

    tokens: jax.Array  # int32 [B, K, M], padded behind the end
    valid: jax.Array  # bool [B, K, M]
    scores: jax.Array  # float32 [B, K], log-probability; with `apart` divided by the length
    carry: Any  # of the step; with `apart` that of the beams that had not ended


class _Texts(NamedTuple):
    tokens: jax.Array  # [B, K, M]
    length: jax.Array  # [B, K]
    scores: jax.Array  # [B, K]


class _Search(NamedTuple):
    position: jax.Array
    carry: Any
    logits: jax.Array
    done: jax.Array  # bool [B, K], beams that have ended; with `apart` rows whose search has
    running: _Texts
    kept: _Texts | None  # with `apart`: those that have ended


def search(
    step: Step,
    reorder: Callable[[Any, jax.Array], Any],
    carry: Any,
    logits: jax.Array,
    limits: Limits,
    pad: int = 0,
    ended: jax.Array | None = None,
    apart: bool = False,
) -> Beams:
    """Searches K beams of each row, with `apart` by the rules of transformers.

    Args:
      step, carry: see `generation.write`.
      reorder: (carry, index int32 [B, K]) -> the carry whose k-th beam is beam index[b, k].
      logits: [B, K, V] of the first tokens, the same for the beams of a row.
      ended: bool [B, K], True for whole rows without a search; None: all are searched.
    """
    chex.assert_rank(logits, 3)
    batch, beams, size = logits.shape
    most, ends = limits.max_new_tokens, jnp.asarray(limits.stops, jnp.int32)
    width = min(max(2, 1 + len(limits.stops)) * beams, beams * size) if apart else beams
    first = jnp.where(jnp.arange(beams) == 0, 0.0, IMPOSSIBLE)  # equal beams would be found K times
    blank = _Texts(
        jnp.full((batch, beams, most), pad, jnp.int32),
        jnp.zeros((batch, beams), jnp.int32),
        jnp.full((batch, beams), IMPOSSIBLE),
    )
    begun = _Search(
        position=jnp.zeros((), jnp.int32),
        carry=carry,
        logits=logits,
        done=jnp.zeros((batch, beams), bool) if ended is None else ended,
        running=blank._replace(scores=jnp.broadcast_to(first, (batch, beams))),
        kept=blank if apart else None,
    )
    nothing = jnp.where(jnp.arange(size) == pad, 0.0, IMPOSSIBLE)

    def body(now: _Search) -> _Search:
        added = jnp.where(now.done[..., None], nothing, jax.nn.log_softmax(now.logits.astype(jnp.float32)))
        totals = (now.running.scores[..., None] + added).reshape(batch, -1)
        scores, places = jax.lax.top_k(totals, width)
        parents, drawn = places // size, (places % size).astype(jnp.int32)
        alive, stops = ~taken(now.done, parents, 1), jnp.isin(drawn, ends)
        found = _Texts(
            taken(now.running.tokens, parents, 1).at[..., now.position].set(drawn),
            taken(now.running.length, parents, 1) + alive,
            scores,
        )
        done, kept = ~alive | stops, now.kept
        if kept is not None:
            good = stops & alive & (jnp.arange(width) < beams)
            by_length = jnp.where(good, scores / found.length.astype(jnp.float32), IMPOSSIBLE)
            kept = _best(kept, found._replace(scores=by_length))
            scores, order = jax.lax.top_k(jnp.where(stops, IMPOSSIBLE, scores), beams)
            parents, drawn, alive, tokens, length = (
                taken(leaf, order, 1) for leaf in (parents, drawn, alive, found.tokens, found.length)
            )
            found, worst = _Texts(tokens, length, scores), kept.scores[:, -1:]
            best_left = scores[:, :1] / (now.position + 1).astype(jnp.float32)
            done = ~alive | ((worst > IMPOSSIBLE) & (best_left <= worst))
        logits, carry = step(reorder(now.carry, parents), drawn, alive)
        return _Search(now.position + 1, carry, logits, done, found, kept)

    end = jax.lax.while_loop(lambda now: (now.position < most) & ~now.done.all(), body, begun)
    texts = end.running
    if end.kept is not None:
        left = jnp.where(end.done, IMPOSSIBLE, texts.scores / most)
        texts = _best(end.kept, texts._replace(scores=left))
    return Beams(texts.tokens, jnp.arange(most) < texts.length[..., None], texts.scores, end.carry)


def _best(a: _Texts, b: _Texts) -> _Texts:
    """The best of both, as many as `a` has, best first."""
    tokens, length, scores = (jnp.concatenate(leaves, axis=1) for leaves in zip(a, b, strict=True))
    scores, index = jax.lax.top_k(scores, a.scores.shape[1])
    return _Texts(taken(tokens, index, 1), taken(length, index, 1), scores)


def beam_search(
    model: LanguageModel, params: Any, tokens: jax.Array, valid: jax.Array, limits: Limits, beams: int
) -> Beams:
    """The `beams` best continuations of prompts int32 [B, T] by transformers' rules; see `search` and `generation.begin`."""
    params = model.prepared(params)
    prompt, cache, logits = begin(model, params, tokens, valid, beams, limits.max_new_tokens)
    step = model_step(model, params, prompt)
    return search(step, picked, cache, logits, limits, model.config.pad_id, apart=True)
