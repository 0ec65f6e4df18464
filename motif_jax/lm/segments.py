"""Generates text in segments and drops prompts whose texts have all ended between them.

A segment's loop runs on the device without stopping. After it the host may end texts at stop texts
of several tokens. When at most half of the prompts still run, they are moved into a smaller
program. Programs are compiled for 1, 2, 4, ... prompts when they are needed. The texts do not
depend on any of this.
"""

from __future__ import annotations

import functools
import math
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
        """The prompts `index`, int32 [R]."""
        return _Running(
            caches.prompts_of(self.prompt, index),
            caches.rows_of(self.cache, index),
            self.logits[index],
            self.keys[index],
            self.ended[index],
        )


class Segments:
    """Generates text with one model, in segments of so many tokens; keeps its compiled programs."""

    def __init__(self, model: LanguageModel, segment: int = SEGMENT) -> None:
        self._model = model
        self._segment = segment
        begin = functools.partial(generation.begin, model)
        self._begin = jax.jit(begin, static_argnames=("branches", "capacity"))
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
        step = generation.model_step(self._model, params, prompt)
        pad = self._model.config.pad_id
        return generation.write(step, cache, logits, keys, limits, sampling, pad, ended, before)

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
