"""Generates text in segments and drops prompts whose texts have all ended between them.

A segment's loop runs on the device without stopping. After it the host may end texts at stop texts of several tokens. When at most half
of the prompts still run, they are moved into a smaller program. Programs are compiled for 1, 2, 4, ... prompts when they are needed.
The texts do not depend on any of this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm import caches, generation
from motif_jax.lm.generation import Written
from motif_jax.lm.model import Cache, EncodedPrompt, LanguageModel
from motif_jax.lm.sampling import Limits, Sampling

# Tokens of a segment.
SEGMENT = 32
# (a text's tokens so far) -> whether it has ended
HasEnded = Callable[[Sequence[int]], bool]


class WrittenTexts(NamedTuple):
    """Generated texts, on the host, see `generation.Written`."""

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
        prompt, cache = caches.prompts_of(self.prompt, index), caches.rows_of(self.cache, index)
        return _Running(prompt, cache, self.logits[index], self.keys[index], self.ended[index])


class Segments:
    """Generates text with one model, in segments of so many tokens; keeps its compiled programs."""

    def __init__(self, model: LanguageModel, segment: int = SEGMENT) -> None:
        self._model, self._segment = model, segment
        begin = functools.partial(generation.begin, model)
        self._begin = jax.jit(begin, static_argnames=("branches", "capacity"))
        # Donation lets the program write the cache in place.
        self._write = jax.jit(
            self._go_on, static_argnames=("limits", "sampling"), donate_argnames=("cache", "logits")
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
        parts = -(-limits.max_new_tokens // self._segment)
        segment = -(-limits.max_new_tokens // parts)
        room, shape = parts * segment, (len(tokens), branches)
        params = self._prepare(params) if self._model.looped else params
        prompt, cache, logits = self._begin(params, tokens, valid, branches=branches, capacity=room)
        keys = key if key.ndim else jax.random.split(key, shape)
        running = _Running(prompt, cache, logits, keys, jnp.zeros(shape, bool))
        padding = np.full((*shape, room), self._model.config.pad_id, np.int32)
        found = WrittenTexts(padding, np.zeros(padding.shape, bool), np.zeros(padding.shape, np.float32))
        places, part_limits = np.arange(len(tokens)), Limits(segment, limits.stops)
        for before in range(0, room, segment):
            written = self._write(params, *running, limits=part_limits, sampling=sampling, before=before)
            for array, new in zip(found, (written.tokens, written.valid, written.log_probs), strict=True):
                array[places, :, before : before + segment] = np.asarray(new)[: len(places)]
            ended = np.array(written.ended)[: len(places)]
            if ends is not None:
                ended |= _ended(found, places, ends)
            if ended.all():
                break
            flags = jnp.asarray(_flags(ended, len(written.ended)))
            running = _Running(running.prompt, written.carry, written.logits, running.keys, flags)
            running, places = self._narrow(running, ended, places)
        return WrittenTexts(*(array[..., : limits.max_new_tokens] for array in found))

    def _go_on(
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
        step = generation.model_step(self._model, params, prompt)
        pad = self._model.config.pad_id
        return generation.write(step, cache, logits, keys, limits, sampling, pad, ended, before)

    def _narrow(
        self, running: _Running, ended: np.ndarray, places: np.ndarray
    ) -> tuple[_Running, np.ndarray]:
        """Drops prompts whose texts have all ended, if that halves the program at least."""
        alive = np.flatnonzero(~ended.all(axis=1))
        size = 1 << (len(alive) - 1).bit_length()
        if 2 * size > len(running.ended):
            return running, places
        index = np.concatenate([alive, np.repeat(alive[:1], size - len(alive))])
        flags = jnp.asarray(_flags(ended[alive], size))
        return self._pick(running, index)._replace(ended=flags), places[alive]


def _flags(ended: np.ndarray, rows: int) -> np.ndarray:
    """Pads `ended` to bool [rows, N]; the added rows have ended."""
    more = np.ones((rows - len(ended), ended.shape[1]), bool)
    return np.concatenate([ended, more])


def _ended(found: WrittenTexts, places: np.ndarray, ends: HasEnded) -> np.ndarray:
    """Calls `ends` for the texts at `places`: bool [rows, N]."""
    rows = [[ends(tokens[good].tolist()) for tokens, good in zip(*pair, strict=True)] for pair in
            zip(found.tokens[places], found.valid[places], strict=True)]  # fmt: skip
    return np.array(rows, bool)
