"""Generates text token by token in one compiled loop with a cache, several continuations of each prompt at a time.

The loop calls a step, a function of (carry, tokens) that returns the next logits. So several networks can run in one loop, each with its
cache in the carry, and a step can combine their logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from motif_jax.language.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.language.sampling import Limits, Sampling, draw
from motif_jax.language.scoring import last_state

# (carry, tokens int32 [B, N], valid bool [B, N]) -> (logits [B, N, V] of the next tokens, carry)
Step = Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]


class Written(NamedTuple):
    """Generated continuations.

    Attributes:
      tokens: int32 [B, N, M], padded behind each continuation's end.
      valid: bool [B, N, M], True up to and with the stop token.
      log_probs: float32 [B, N, M], of the drawn tokens under the filtered logits, 0 for padding.
      ended: bool [B, N], which continuations ended with a stop token.
      logits: [B, N, V], of the next tokens.
      carry: of the step, for a later call that continues the text.
    """

    tokens: jax.Array
    valid: jax.Array
    log_probs: jax.Array
    ended: jax.Array
    logits: jax.Array
    carry: Any


class _Loop(NamedTuple):
    position: jax.Array
    logits: jax.Array
    ended: jax.Array
    tokens: jax.Array
    valid: jax.Array
    log_probs: jax.Array
    carry: Any


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

    A continuation's draws depend on its own key and tokens alone, not on the others or on the number of calls.

    Args:
      step: its `valid` is True for unfinished continuations; ended ones receive `pad`.
      carry: of the step, after the prompts.
      logits: [B, N, V], of the first tokens.
      key: of all draws, or one for each continuation [B, N].
      limits: `max_new_tokens` counts for this call.
      pad: the token behind the end.
      ended: bool [B, N], continuations that have ended; None: none has.
      before: int32 [], tokens that earlier calls have generated.
    """
    chex.assert_rank(logits, 3)
    shape = logits.shape[:2]
    keys = key if key.ndim else jax.random.split(key, shape)
    chex.assert_shape(keys, shape)
    most, ends = limits.max_new_tokens, jnp.asarray(limits.stops, jnp.int32)
    empty = _Loop(
        position=jnp.zeros((), jnp.int32),
        logits=logits,
        ended=jnp.zeros(shape, bool) if ended is None else ended,
        tokens=jnp.full((*shape, most), pad, jnp.int32),
        valid=jnp.zeros((*shape, most), bool),
        log_probs=jnp.zeros((*shape, most), jnp.float32),
        carry=carry,
    )

    def goes_on(loop: _Loop) -> jax.Array:
        return (loop.position < most) & ~loop.ended.all()

    def body(loop: _Loop) -> _Loop:
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))
        now = loop.position if sampling.greedy else fold(keys, before + loop.position)
        drawn, log_probs = draw(now, loop.logits, sampling)
        alive = ~loop.ended
        drawn = jnp.where(alive, drawn, pad)
        logits, carry = step(loop.carry, drawn, alive)
        return _Loop(
            position=loop.position + 1,
            logits=logits,
            ended=loop.ended | jnp.isin(drawn, ends),
            tokens=loop.tokens.at[..., loop.position].set(drawn),
            valid=loop.valid.at[..., loop.position].set(alive),
            log_probs=loop.log_probs.at[..., loop.position].set(jnp.where(alive, log_probs, 0.0)),
            carry=carry,
        )

    done = jax.lax.while_loop(goes_on, body, empty)
    return Written(done.tokens, done.valid, done.log_probs, done.ended, done.logits, done.carry)


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
    """Runs prompts and prepares a call of `write`.

    Args:
      tokens: int32 [B, T].
      valid: bool [B, T], False for padding, on either side.
      branches: N, continuations of each prompt.
      capacity: most tokens of a continuation.

    Returns:
      The prompts, an empty cache (with a decoder's start token where there is an encoder), and logits [B, N, V].
    """
    states, prompt = model.prefill(params, tokens, valid)
    batch = tokens.shape[0]
    if model.config.encoder_layers:
        cache = model.start(batch, branches, capacity + 1)
        start = jnp.full((batch, branches, 1), model.config.start_id, jnp.int32)
        opened, cache = model.extend(params, prompt, start, jnp.ones_like(start, bool), cache)  # type: ignore[assignment]
        return prompt, cache, model.logits(params, opened.after[:, :, 0])
    shape = batch, branches, states.after.shape[-1]
    last = jnp.broadcast_to(last_state(states, valid).after[:, None], shape)
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
    """Continues prompts; the continuations of a prompt share its keys and values.

    Args:
      tokens: int32 [B, T].
      valid: bool [B, T], False for padding, on either side.
      branches: continuations of each prompt.
    """
    prompt, cache, logits = begin(model, params, tokens, valid, branches, limits.max_new_tokens)
    step = model_step(model, params, prompt)
    return write(step, cache, logits, key, limits, sampling, model.config.pad_id)
