"""Probabilities of the token right after prompts that begin alike: what they share is run once.

The shared beginning is a prompt of one row (`LanguageModel.prefill`), and the rest of each prompt one of its continuations
(`LanguageModel.extend`), which look at the same keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.lm.model import EncodedPrompt, LanguageModel
from motif_jax.lm.tokens import TOKENS_OF_BATCH, bucket, padded

# Prompts that are padded to a multiple of this many tokens; longer ones to `bucket`, which has fewer widths.
_FINE_STEP, _FINE_UNTIL = 8, 64


class PromptBatch(NamedTuple):
    """Prompts that run together: their positions in the caller's list, and the padded length of what they do not share."""

    positions: list[int]
    width: int


def shared_length(rows: Sequence[Sequence[int]]) -> int:
    """The number of tokens at the beginning that all rows share; at least one token of each row is left to be its own."""
    length = 0
    # The shortest row ends the columns.
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return max(0, min(length, min(map(len, rows)) - 1))


def padded_width(length: int) -> int:
    """The padded length of a batch whose longest row has `length` tokens."""
    if length <= _FINE_UNTIL:
        return -(-length // _FINE_STEP) * _FINE_STEP
    return bucket(length)


def batches(
    lengths: Sequence[int], maximum: int, tokens_of_batch: int = TOKENS_OF_BATCH
) -> list[PromptBatch]:
    """Puts prompts of like length into batches of at most `maximum`, the longest first.

    The longest come first, so that a device without room for them fails at once and not after hours.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    parts: list[PromptBatch] = []
    while order:
        width = padded_width(lengths[order[0]])
        count = max(1, min(maximum, tokens_of_batch // width))
        parts.append(PromptBatch(order[:count], width))
        order = order[count:]
    return parts


class NextToken:
    """Log-probabilities of groups of tokens right after prompts.

    Args:
      params: of `model`, a decoder, on its device.
      groups: tokens whose probabilities are added; none may be empty.
      shared: the tokens that prompts begin with. A prompt that begins otherwise is run from its first token.
      batch: greatest number of prompts that run at a time.
    """

    def __init__(
        self,
        model: LanguageModel,
        params: Any,
        groups: Sequence[Sequence[int]],
        shared: Sequence[int] = (),
        batch: int = 32,
    ) -> None:
        self.shared = list(shared)
        self._model, self._params, self._batch = model, params, batch
        self._groups = padded(groups)
        self._extend = jax.jit(self._log_probs)
        self._prompt: EncodedPrompt | None = None

    def __call__(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields positions in `rows` (tokens of prompts) and their log-probabilities float32 [positions, groups], by batch."""
        begins = [bool(self.shared) and self._begins_alike(row) for row in rows]
        for alike in (True, False):
            positions = [position for position, begin in enumerate(begins) if begin is alike]
            skipped = len(self.shared) if alike else 0
            lengths = [len(rows[position]) - skipped for position in positions]
            for part in batches(lengths, self._batch):
                chosen = [positions[index] for index in part.positions]
                unshared = [rows[position][skipped:] for position in chosen]
                yield chosen, self._run(unshared, part.width, self._shared_keys() if alike else None)

    def _begins_alike(self, row: Sequence[int]) -> bool:
        return len(row) > len(self.shared) and list(row[: len(self.shared)]) == self.shared

    def _shared_keys(self) -> EncodedPrompt:
        if self._prompt is None:
            tokens = jnp.asarray([self.shared], jnp.int32)
            prefill = jax.jit(
                lambda params, row: self._model.prefill(params, row, jnp.ones(row.shape, bool))[1]
            )
            self._prompt = prefill(self._params, tokens)
        return self._prompt

    def _run(self, rows: Sequence[Sequence[int]], width: int, prompt: EncodedPrompt | None) -> np.ndarray:
        tokens = padded(rows, width, self._model.config.pad_id)
        # Two numbers of rows for each width: a program of a large model takes longer to compile than a batch takes to run.
        few = max(1, self._batch // 8)
        full = max(1, min(self._batch, TOKENS_OF_BATCH // width))
        size = few if len(rows) <= few <= full else full
        spare = size - len(rows)
        filled = [np.concatenate([array, np.repeat(array[:1], spare, axis=0)]) for array in tokens]
        log_probs = self._extend(self._params, prompt, *filled)
        return np.asarray(log_probs)[: len(rows)]

    def _log_probs(
        self, params: Any, prompt: EncodedPrompt | None, tokens: jax.Array, valid: jax.Array
    ) -> jax.Array:
        """Log-probabilities float32 [N, groups] after rows int32 [N, S], padded on the right."""
        chex.assert_rank([tokens, valid], 2)
        chex.assert_equal_shape([tokens, valid])
        if prompt is None:
            states = self._model.prefill(params, tokens, valid)[0].after
        else:
            states = self._model.extend(params, prompt, tokens[None], valid[None])[0].after[0]
        last = valid.sum(axis=1) - 1
        # Logits stand at one token of each prompt: those of all tokens would be gigabytes.
        ends = jnp.take_along_axis(states, last[:, None, None], axis=1)[:, 0]
        log_probs = jax.nn.log_softmax(self._model.logits(params, ends), axis=-1)
        chosen = log_probs[:, self._groups.tokens]
        return jax.nn.logsumexp(jnp.where(self._groups.valid, chosen, -jnp.inf), axis=-1)
