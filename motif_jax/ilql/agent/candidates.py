"""Draws several continuations of each text, with their log-probabilities and the mean of all states
up to their ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.ilql.agent.decoding import without
from motif_jax.lm import generation
from motif_jax.lm.generation import Limits, Sampling
from motif_jax.lm.model import Cache, LanguageModel
from motif_jax.lm.network import States
from motif_jax.lm.scoring import last_state


class WrittenCandidates(NamedTuple):
    """N continuations of each of B texts."""

    tokens: jax.Array  # int32 [B, N, M]
    valid: jax.Array  # bool [B, N, M], True up to and with the stop token
    log_probs: jax.Array  # float32 [B, N], under the filtered logits
    means: jax.Array  # float32 [B, N, D], mean state after the last norm over `counts` tokens
    counts: jax.Array  # int32 [B, N], number of tokens of text and continuation


def write(
    model: LanguageModel,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    keys: jax.Array,
    limits: Limits,
    sampling: Sampling,
    pad: int,
) -> WrittenCandidates:
    """Draws a decoder's continuations of texts int32 [B, T], one for each of `keys` [B, N]; the
    token `pad` is never drawn.
    """
    chex.assert_rank(keys, 2)
    states, prompt = model.prefill(params, tokens, valid)
    branch = (*keys.shape, states.after.shape[-1])
    total = jnp.where(valid[..., None], states.after.astype(jnp.float32), 0.0).sum(axis=1)
    # [B, D] becomes [B, N, D]: all candidates of a text begin at its last state.
    last = States(*(jnp.broadcast_to(x[:, None], branch) for x in last_state(states, valid)))

    def logits_of(last: States) -> jax.Array:
        return without(model.logits(params, last.after), pad)

    def step(
        carry: tuple[Cache, jax.Array], drawn: jax.Array, alive: jax.Array
    ) -> tuple[jax.Array, tuple[Cache, jax.Array]]:
        cache, total = carry
        states, cache = model.extend(params, prompt, drawn[..., None], alive[..., None], cache)  # type: ignore[assignment]
        last = States(*(x[:, :, 0] for x in states))
        # The stop token counts, the padding after it does not.
        total = total + jnp.where(alive[..., None], last.after.astype(jnp.float32), 0.0)
        return logits_of(last), (cache, total)

    cache = model.start(keys.shape[0], keys.shape[1], limits.max_new_tokens)
    carry = (cache, jnp.broadcast_to(total[:, None], branch))
    written = generation.write(step, carry, logits_of(last), keys, limits, sampling, pad)
    _, total = written.carry
    counts = prompt.length[:, None] + written.valid.sum(axis=-1, dtype=jnp.int32)
    means = total / counts[..., None].astype(jnp.float32)
    return WrittenCandidates(
        written.tokens, written.valid, written.log_probs.sum(axis=-1), means, counts
    )
