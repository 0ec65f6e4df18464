"""Generates text token by token in one compiled loop with a cache, several continuations of each
prompt at a time.

The loop calls a step, a function of (carry, tokens) that returns the next logits. So several
networks can run in one loop, each with its cache in the carry, and a step can combine their logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.lm.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.lm.sampling import Limits, Sampling, draw
from motif_jax.lm.scoring import last_state

# (carry, tokens int32 [B, N], valid bool [B, N]) -> (logits [B, N, V] of the next tokens, carry)
Step = Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]

# Folds one number into each of the keys [B, N].
_fold_in_all = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))


class Written(NamedTuple):
    """N continuations of each of B prompts."""

    tokens: jax.Array  # int32 [B, N, M], padded after each continuation's end
    valid: jax.Array  # bool [B, N, M], True up to and with the stop token
    # float32 [B, N, M], of the drawn tokens under the filtered logits, 0 for padding
    log_probs: jax.Array
    ended: jax.Array  # bool [B, N], whether a stop token came
    logits: jax.Array  # [B, N, V], of the next tokens
    carry: Any  # of the step, for a later call that continues the text


def write(
    step: Step,
    carry: Any,
    logits: jax.Array,
    key: jax.Array,
    limits: Limits,
    sampling: Sampling,
    pad: int = 0,
    ended: jax.Array | None = None,
    before: jax.Array | int = 0,
) -> Written:
    """Draws tokens until every continuation has ended.

    A continuation's draws depend on its own key and tokens alone, not on the others or on the
    number of calls.

    Args:
      step: its `valid` is True for unfinished continuations; ended ones receive `pad`.
      carry, logits: of the step after the prompts, and of the first tokens [B, N, V].
      key: of all draws, or one for each continuation [B, N].
      limits: `max_new_tokens` counts for this call.
      ended: bool [B, N], continuations that have ended; None: none has.
      before: int32 [], tokens that earlier calls have generated.
    """
    chex.assert_rank(logits, 3)
    shape = logits.shape[:2]
    # A continuation's own key: what it draws does not change when others are dropped (`segments`).
    keys = key if key.ndim else jax.random.split(key, shape)
    chex.assert_shape(keys, shape)
    max_length = limits.max_new_tokens
    stop_tokens = jnp.asarray(limits.stops, jnp.int32)
    empty = Written(
        tokens=jnp.full((*shape, max_length), pad, jnp.int32),
        valid=jnp.zeros((*shape, max_length), bool),
        log_probs=jnp.zeros((*shape, max_length), jnp.float32),
        ended=jnp.zeros(shape, bool) if ended is None else ended,
        logits=logits,
        carry=carry,
    )

    def body(loop: tuple[jax.Array, Written]) -> tuple[jax.Array, Written]:
        position, so_far = loop
        # Folding costs time, and a greedy draw ignores its key.
        token_keys = position if sampling.greedy else _fold_in_all(keys, before + position)
        drawn, log_probs = draw(token_keys, so_far.logits, sampling)
        alive = ~so_far.ended
        drawn = jnp.where(alive, drawn, pad)
        logits, carry = step(so_far.carry, drawn, alive)
        return position + 1, Written(
            tokens=so_far.tokens.at[..., position].set(drawn),
            valid=so_far.valid.at[..., position].set(alive),
            log_probs=so_far.log_probs.at[..., position].set(jnp.where(alive, log_probs, 0.0)),
            # An ended text receives `pad`, which of a GPT-2 is a stop token as well: it stays ended
            # either way.
            ended=so_far.ended | jnp.isin(drawn, stop_tokens),
            logits=logits,
            carry=carry,
        )

    def is_unfinished(loop: tuple[jax.Array, Written]) -> jax.Array:
        position, so_far = loop
        # The loop may end before `max_length`: what it has not written stays `pad` and not valid.
        return (position < max_length) & ~so_far.ended.all()

    _, written = jax.lax.while_loop(is_unfinished, body, (jnp.zeros((), jnp.int32), empty))
    return written


def model_step(model: LanguageModel, params: Any, prompt: EncodedPrompt | None) -> Step:
    """A step of one model; its carry is the continuations' `Cache`."""

    def step(cache: Cache, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, Cache]:
        states, cache = model.extend(params, prompt, tokens[..., None], valid[..., None], cache)  # type: ignore[assignment]
        return model.logits(params, states.after[:, :, 0]), cache

    return step


def begin(
    model: LanguageModel,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    branches: int,
    capacity: int,
) -> tuple[EncodedPrompt, Cache, jax.Array]:
    """Runs prompts int32 [B, T], padded on either side, and prepares `write` of N = `branches`
    continuations of `capacity` tokens.

    Returns the prompts, an empty cache (with a decoder's start token where there is an encoder),
    and logits [B, N, V].
    """
    states, prompt = model.prefill(params, tokens, valid)
    batch = tokens.shape[0]
    if model.config.encoder_layers:
        # One slot more, for the start token.
        cache = model.start(batch, branches, capacity + 1)
        start = jnp.full((batch, branches, 1), model.config.start_id, jnp.int32)
        start_states, cache = model.extend(params, prompt, start, jnp.ones_like(start, bool), cache)  # type: ignore[assignment]
        return prompt, cache, model.logits(params, start_states.after[:, :, 0])

    # All continuations of a prompt begin with the same logits, and draw differently.
    last = last_state(states, valid).after[:, None]
    last = jnp.broadcast_to(last, (batch, branches, last.shape[-1]))
    return prompt, model.start(batch, branches, capacity), model.logits(params, last)


def generate(
    model: LanguageModel,
    params: Any,
    tokens: jax.Array,
    valid: jax.Array,
    key: jax.Array,
    limits: Limits,
    sampling: Sampling,
    branches: int = 1,
) -> Written:
    """Continues prompts int32 [B, T], padded on either side; the continuations of a prompt share
    its keys and values.
    """
    params = model.prepared(params)
    prompt, cache, logits = begin(model, params, tokens, valid, branches, limits.max_new_tokens)
    step = model_step(model, params, prompt)
    return write(step, cache, logits, key, limits, sampling, model.config.pad_id)
