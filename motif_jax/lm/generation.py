"""Generates text token by token in one compiled loop with a cache, several continuations of each
prompt at a time.

The loop calls a step, a function of (carry, tokens) that returns the next logits. So several
networks can run in one loop, each with its cache in the carry, and a step can combine their logits.

`Segments` runs the loop for so many tokens at a time and drops prompts whose texts have all ended
between them. A segment's loop runs on the device without stopping. After it the host may end texts
at stop texts of several tokens. When at most half of the prompts still run, they are moved into a
smaller program. Programs are compiled for 1, 2, 4, ... prompts when they are needed. The texts do
not depend on any of this.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.lm.layers import over_layers
from motif_jax.lm.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.lm.scoring import last_state

IMPOSSIBLE = -jnp.inf


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a token is drawn from logits; the filters apply in this order.

    Attributes:
      greedy: take the most likely token; the other fields are ignored.
      temperature: logits are divided by it.
      top_k: keep the k most likely tokens; 0 keeps all.
      top_p: keep the fewest most likely tokens whose probabilities sum to at least this; 1 keeps
          all.
    """

    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise UserError(
                f"temperature={self.temperature}: must be above 0 (greedy takes the most likely token)"
            )


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where a text ends; the tokens `stops` are part of it."""

    max_new_tokens: int
    stops: tuple[int, ...]


def filtered(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Logits float32 [..., V] divided by the temperature; -inf where top-k or top-p (Holtzman et
    al. 2020) drops a token.
    """
    logits = logits.astype(jnp.float32) / sampling.temperature
    size = logits.shape[-1]
    if 0 < sampling.top_k < size:
        largest, _ = jax.lax.top_k(logits, sampling.top_k)
        # Tokens as likely as the k-th stay, so that there may be more than k.
        threshold = largest[..., -1:]
        logits = jnp.where(logits < threshold, IMPOSSIBLE, logits)
    if sampling.top_p < 1:
        ordered = jnp.sort(logits, axis=-1, descending=True)
        probabilities = jax.nn.softmax(ordered, axis=-1)
        # A token is needed where those before it sum to less than top_p; the first always is.
        needed = jnp.cumsum(probabilities, axis=-1) - probabilities < sampling.top_p
        threshold = jnp.min(jnp.where(needed, ordered, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < threshold, IMPOSSIBLE, logits)
    return logits


def draw(key: jax.Array, logits: jax.Array, sampling: Sampling) -> tuple[jax.Array, jax.Array]:
    """Draws a token from each row of logits [..., V], with one key for all, or one for each [...].

    Returns tokens int32 [...], and their log-probabilities float32 [...] under the filtered logits
    (greedy: under all).
    """
    chex.assert_rank(logits, {1, 2, 3})
    if sampling.greedy:
        tokens = jnp.argmax(logits, axis=-1)
        return tokens.astype(jnp.int32), token_log_probs(logits, tokens)

    # What is drawn and its log-probability are of the same, filtered distribution.
    logits = filtered(logits, sampling)
    if key.ndim:
        chex.assert_shape(key, logits.shape[:-1])
        flat_logits = logits.reshape(-1, logits.shape[-1])
        tokens = jax.vmap(jax.random.categorical)(key.reshape(-1), flat_logits).reshape(key.shape)
    else:
        tokens = jax.random.categorical(key, logits, axis=-1)
    return tokens.astype(jnp.int32), token_log_probs(logits, tokens)


def token_log_probs(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Log-probabilities float32 [...] of tokens int32 [...] under logits [..., V]."""
    logits = logits.astype(jnp.float32)
    # One token's log-softmax, without an array of all of them.
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


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
    # A continuation's own key: what it draws does not change when others are dropped (`Segments`).
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


# Tokens of a segment.
SEGMENT = 32
# (a text's tokens so far) -> whether it has ended
HasEnded = Callable[[Sequence[int]], bool]


class WrittenTexts(NamedTuple):
    """Generated texts, on the host, see `Written`."""

    tokens: np.ndarray
    valid: np.ndarray
    log_probs: np.ndarray


class _Running(NamedTuple):
    """The prompts that still run, on the device."""

    prompt: EncodedPrompt
    cache: Cache
    logits: jax.Array
    keys: jax.Array
    ended: jax.Array

    def pick(self, index: jax.Array) -> _Running:
        """The prompts `index`, int32 [R]."""
        return _Running(
            prompts_of(self.prompt, index),
            rows_of(self.cache, index),
            self.logits[index],
            self.keys[index],
            self.ended[index],
        )


class Segments:
    """Generates text with one model, in segments of so many tokens; keeps its compiled programs."""

    def __init__(self, model: LanguageModel, segment: int = SEGMENT) -> None:
        self._model = model
        self._segment = segment
        self._begin = jax.jit(
            functools.partial(begin, model), static_argnames=("branches", "capacity")
        )
        # Donation lets the program write the cache in place.
        self._write = jax.jit(
            self._write_segment,
            static_argnames=("limits", "sampling"),
            donate_argnames=("cache", "logits"),
        )
        self._pick = jax.jit(_Running.pick)
        self._prepare = jax.jit(model.prepared)

    def write(
        self,
        params: Any,
        tokens: np.ndarray,
        valid: np.ndarray,
        key: jax.Array,
        limits: Limits,
        sampling: Sampling,
        branches: int = 1,
        ends: HasEnded | None = None,
    ) -> WrittenTexts:
        """Writes N = `branches` continuations of each prompt int32 [B, T], padded on either side.

        Args:
          key: of all draws, or one for each text [B, N].
          ends: called for each text after each segment; None: texts end at `limits` alone.
        """
        # Segments of one length, so that one program writes all of them.
        segments = math.ceil(limits.max_new_tokens / self._segment)
        segment = math.ceil(limits.max_new_tokens / segments)
        segment_limits = Limits(segment, limits.stops)
        capacity = segments * segment
        shape = (len(tokens), branches)
        # Stacked once for all segments: each program would do it again (`LanguageModel.prepared`).
        if self._model.looped:
            params = self._prepare(params)
        prompt, cache, logits = self._begin(
            params, tokens, valid, branches=branches, capacity=capacity
        )
        keys = key if key.ndim else jax.random.split(key, shape)
        # What a segment needs of the one before it stays on the device; texts are collected here.
        running = _Running(prompt, cache, logits, keys, jnp.zeros(shape, bool))

        texts = WrittenTexts(
            tokens=np.full((*shape, capacity), self._model.config.pad_id, np.int32),
            valid=np.zeros((*shape, capacity), bool),
            log_probs=np.zeros((*shape, capacity), np.float32),
        )
        # Of each running prompt the row in `texts`; the program may have more rows, which are
        # copies.
        rows = np.arange(len(tokens))
        for start in range(0, capacity, segment):
            written = self._write(
                params, *running, limits=segment_limits, sampling=sampling, before=start
            )
            columns = slice(start, start + segment)
            # This waits for the device. Rows beyond `rows` are copies that `_narrow` added.
            texts.tokens[rows, :, columns] = np.asarray(written.tokens)[: len(rows)]
            texts.valid[rows, :, columns] = np.asarray(written.valid)[: len(rows)]
            texts.log_probs[rows, :, columns] = np.asarray(written.log_probs)[: len(rows)]
            # A copy, as an array of jax cannot be written to.
            ended = np.array(written.ended)[: len(rows)]
            if ends is not None:
                ended |= _ended_by(ends, texts, rows)
            if ended.all():
                break
            # The added rows count as ended, so that the loop does not wait for them.
            padded_ended = jnp.asarray(_pad_ended(ended, len(written.ended)))
            running = _Running(
                running.prompt, written.carry, written.logits, running.keys, padded_ended
            )
            # Before the next segment, so that texts that have ended cost no more of its steps.
            running, rows = self._narrow(running, ended, rows)

        # Segments of equal length may have written a few tokens more than were asked for.
        length = limits.max_new_tokens
        return WrittenTexts(
            texts.tokens[..., :length], texts.valid[..., :length], texts.log_probs[..., :length]
        )

    def _write_segment(
        self,
        params: Any,
        prompt: EncodedPrompt,
        cache: Cache,
        logits: jax.Array,
        keys: jax.Array,
        ended: jax.Array,
        *,
        limits: Limits,
        sampling: Sampling,
        before: jax.Array,
    ) -> Written:
        step = model_step(self._model, params, prompt)
        pad = self._model.config.pad_id
        return write(step, cache, logits, keys, limits, sampling, pad, ended, before)

    def _narrow(
        self, running: _Running, ended: np.ndarray, rows: np.ndarray
    ) -> tuple[_Running, np.ndarray]:
        """Drops prompts whose texts have all ended, if that halves the program at least."""
        # A prompt runs on while any of its texts does: these share its keys.
        alive = np.flatnonzero(~ended.all(axis=1))
        # The next power of two, so that few programs are compiled.
        size = 1 << (len(alive) - 1).bit_length()
        if 2 * size > len(running.ended):
            return running, rows
        index = np.concatenate([alive, np.repeat(alive[:1], size - len(alive))])
        padded_ended = jnp.asarray(_pad_ended(ended[alive], size))
        return self._pick(running, index)._replace(ended=padded_ended), rows[alive]


def _pad_ended(ended: np.ndarray, rows: int) -> np.ndarray:
    """Pads `ended` to bool [rows, N]; the added rows have ended."""
    padding = np.ones((rows - len(ended), ended.shape[1]), bool)
    return np.concatenate([ended, padding])


def _ended_by(ends: HasEnded, texts: WrittenTexts, rows: np.ndarray) -> np.ndarray:
    """Calls `ends` for each text of some rows: bool [R, N]."""
    ended = np.zeros((len(rows), texts.tokens.shape[1]), bool)
    for number, row in enumerate(rows):
        for branch in range(texts.tokens.shape[1]):
            valid = texts.valid[row, branch]
            ended[number, branch] = ends(texts.tokens[row, branch][valid].tolist())
    return ended


# Changes to caches between turns: candidates branch from a row's text, and the chosen one becomes
# part of it.


def taken(leaf: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    """Takes `index` int32 [B, M] along `axis` of `leaf`; axis - 1 is B."""
    # The index broadcasts over all axes but B, at axis - 1, and N, at `axis`.
    axes_before = [1] * (axis - 1)
    axes_after = [1] * (leaf.ndim - axis - 1)
    shape = (*axes_before, *index.shape, *axes_after)
    return jnp.take_along_axis(leaf, index.reshape(shape), axis=axis)


def _mapped(function: Callable[..., jax.Array], *caches: Cache) -> Cache:
    """Applies a function to the arrays of all layers and of the tokens, but not to `slot`, which is
    that of the last cache.
    """
    keys = over_layers(function, *(cache.keys for cache in caches))
    valid = function(*(cache.valid for cache in caches))
    written = function(*(cache.written for cache in caches))
    # One number for all rows and continuations, which no pick or join of these changes.
    return Cache(keys, valid, caches[-1].slot, written)


def picked(cache: Cache, index: jax.Array) -> Cache:
    """The cache whose n-th continuation is continuation `index[b, n]` of `cache`; `index` int32
    [B, M].
    """
    return _mapped(lambda leaf: taken(leaf, index, 1), cache)


def join_continuations(a: Cache, b: Cache) -> Cache:
    """Joins the continuations of two caches of the same rows; `slot` is that of `b`."""
    return _mapped(lambda x, y: jnp.concatenate([x, y], axis=1), a, b)


def as_prompt(cache: Cache) -> EncodedPrompt:
    """Turns each row's text into the prompt of its candidates."""
    # A prompt has no axis N: its text is the first continuation.
    first = _mapped(lambda leaf: leaf[:, 0], cache)
    return EncodedPrompt(first.keys, first.valid, first.written)


def grown(cache: Cache, more: Cache) -> Cache:
    """Appends the slots of `more`, a cache of the same rows."""

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        # Slots are the fourth axis of a layer's [B, N, G, K, D]; the loop's axis of layers is
        # mapped over.
        return jax.lax.dynamic_update_slice(old, new, (0, 0, 0, cache.slot, 0))

    return Cache(
        over_layers(put, cache.keys, more.keys),
        jax.lax.dynamic_update_slice(cache.valid, more.valid, (0, 0, cache.slot)),
        cache.slot + more.valid.shape[2],
        cache.written + more.written,
    )


def shortened(cache: Cache, keep: jax.Array) -> Cache:
    """Keeps the first `keep` int32 [B] tokens of each row."""
    count = jnp.cumsum(cache.valid, axis=2)
    # Their keys stay, hidden: rows keep different numbers of tokens, and `slot` is one for all.
    # `squeezed` frees the slots.
    valid = cache.valid & (count <= keep[:, None, None])
    return cache._replace(valid=valid, written=jnp.minimum(cache.written, keep[:, None]))


def rows_of(cache: Cache, index: jax.Array) -> Cache:
    """Takes the rows `index`, int32 [R]."""
    return _mapped(lambda leaf: leaf[index], cache)


def prompts_of(prompt: EncodedPrompt, index: jax.Array) -> EncodedPrompt:
    """Takes the prompts `index`, int32 [R]."""
    keys = over_layers(lambda leaf: leaf[index], prompt.keys)
    return EncodedPrompt(keys, prompt.valid[index], prompt.length[index])


def squeezed(cache: Cache, capacity: int) -> Cache:
    """Removes the padding between tokens; the result has `capacity` slots."""
    # A stable sort: tokens come first and keep their order, padding after them.
    order = jnp.argsort(~cache.valid, axis=2, stable=True)

    def move(leaf: jax.Array, axis: int) -> jax.Array:
        shape = [*order.shape[:2], *[1] * (leaf.ndim - 2)]
        shape[axis] = order.shape[2]
        moved = jnp.take_along_axis(leaf, order.reshape(shape), axis=axis)
        free_slots = [(0, 0)] * leaf.ndim
        free_slots[axis] = (0, capacity - order.shape[2])
        return jnp.pad(moved, free_slots)

    keys = over_layers(lambda leaf: move(leaf, 3), cache.keys)
    # Rows write at one slot, so it is the first that is free in all of them.
    return Cache(keys, move(cache.valid, 2), jnp.max(cache.written), cache.written)
