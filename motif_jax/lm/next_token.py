"""Probabilities of the token right after prompts that begin alike: what several prompts begin with
is run once.

The beginning that all prompts share is a prompt of one row (`LanguageModel.prefill`). The rest of
the prompts is packed as trees (`prompt_trees`), which are its continuations
(`LanguageModel.extend_trees`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices.memory import return_freed_memory
from motif_jax.lm import prompt_trees
from motif_jax.lm.model import EncodedPrompt, LanguageModel
from motif_jax.lm.prompt_trees import Pack, PackArrays, Tokens
from motif_jax.lm.tokens import TOKENS_OF_BATCH, bucket, padded

# Tokens of a pack, where a batch has as many. Wider packs share more, but a token's attention is
# computed over all tokens of its pack. On NetHack's questions, of 38 tokens, a model of 135 million
# parameters takes as long with 192 and with 128; larger models spend less on attention.
_PACK_WIDTH = 256
# Packs of long prompts have room for two where that is no more than this; beyond it attention would
# cost more than the tokens it saves.
_WIDEST_OF_TWO = 1024
# A pack has room for a prompt for every four of its tokens. Prompts that add fewer, on average,
# begin a new pack early.
_TOKENS_OF_PLACE = 4
# Prompts whose logits are computed at a time, in float32: 39 MB with 151,936 tokens. A CPU takes
# twice as long for a prompt with 16, since it reads the head as often as that.
_PROMPTS_OF_LOGITS = 64
# A batch has so many tokens for each prompt that runs at a time: short questions have about as many
# of their own.
_TOKENS_OF_PROMPT = 32


class PackBatch(NamedTuple):
    """Packs that run together.

    Attributes:
      width: tokens of a pack with its padding.
      capacity: prompts that a pack has room for.
      packs: those of the batch.
      size: packs of the program, which may be more.
    """

    width: int
    capacity: int
    packs: list[Pack]
    size: int


class _RunPrompt(NamedTuple):
    """A prompt that has run, but for its logits.

    Attributes:
      position: of the prompt in the caller's list.
      computed: its tokens that were run.
      state: [D], after the last norm, at its last token.
    """

    position: int
    computed: int
    state: np.ndarray


class _ProgramKey(NamedTuple):
    width: int
    continues_shared: bool


class NextTokens(NamedTuple):
    """What comes after some prompts.

    Attributes:
      positions: of the prompts in the caller's list.
      log_probs: float32 [positions, groups].
      computed: for each prompt its tokens that were run; the others were run for a prompt before
          it.
    """

    positions: list[int]
    log_probs: np.ndarray
    computed: list[int]


def shared_beginning_length(rows: Sequence[Tokens]) -> int:
    """The number of tokens at the beginning that all rows share; at least one token of each row is
    left to be its own.
    """
    return max(0, min(prompt_trees.shared_length(rows), min(map(len, rows)) - 1))


def pack_width(length: int, batch: int) -> int:
    """Tokens of a pack of prompts of about `length` tokens, in batches of `batch` prompts."""
    batch_tokens = batch * _TOKENS_OF_PROMPT
    width = bucket(length)
    if 2 * width <= min(batch_tokens, _WIDEST_OF_TWO):
        width *= 2
    return max(width, min(_PACK_WIDTH, bucket(batch_tokens)))


def batches(
    prompts: Sequence[Tokens], batch: int, tokens_of_batch: int = TOKENS_OF_BATCH
) -> list[PackBatch]:
    """Puts prompts into packs, and packs into batches of `batch` prompts of 32 tokens, the longest
    prompts first.

    The longest come first, so that a device without room for them fails at once and not after
    hours. A batch has at most `tokens_of_batch` tokens, or one pack.
    """
    positions_of_width: dict[int, list[int]] = {}
    for position, prompt in enumerate(prompts):
        width = pack_width(len(prompt), batch)
        positions_of_width.setdefault(width, []).append(position)
    parts: list[PackBatch] = []
    for width in sorted(positions_of_width, reverse=True):
        positions = positions_of_width[width]
        capacity = width // _TOKENS_OF_PLACE
        packs = prompt_trees.packed([prompts[position] for position in positions], width, capacity)
        packs = [
            pack._replace(positions=[positions[index] for index in pack.positions])
            for pack in packs
        ]
        packs_of_batch = max(1, min(batch * _TOKENS_OF_PROMPT, tokens_of_batch) // width)
        while packs:
            # The last batch fills up with copies: a program of a large model takes longer to
            # compile than a batch takes to run, and keeps as much memory as a quarter of the
            # weights of a small one.
            parts.append(PackBatch(width, capacity, packs[:packs_of_batch], packs_of_batch))
            packs = packs[packs_of_batch:]
    return parts


class NextToken:
    """Log-probabilities of groups of tokens right after prompts.

    Args:
      params: of `model`, a decoder, on its device.
      groups: tokens whose probabilities are added; none may be empty.
      shared: the tokens that prompts begin with. A prompt that begins otherwise is run from its
          first token.
      batch: prompts that run at a time, if each adds 32 tokens; of shorter ones it is more, of
          longer ones fewer.
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
        self._programs: dict[_ProgramKey, jax.stages.Compiled] = {}
        self._predict = jax.jit(self._log_probs)
        self._prompt: EncodedPrompt | None = None

    def __call__(self, rows: Sequence[Sequence[int]]) -> Iterator[NextTokens]:
        """Yields what comes after the prompts `rows`, of which none is empty, some at a time."""
        waiting: list[_RunPrompt] = []
        for batch in self._run(rows):
            waiting += batch
            while len(waiting) >= _PROMPTS_OF_LOGITS:
                yield self._next_tokens(waiting[:_PROMPTS_OF_LOGITS])
                waiting = waiting[_PROMPTS_OF_LOGITS:]
        if waiting:
            yield self._next_tokens(waiting)

    def _run(self, rows: Sequence[Sequence[int]]) -> Iterator[list[_RunPrompt]]:
        """Runs the prompts by batch, those that begin alike first."""
        begins = [bool(self.shared) and self._begins_alike(row) for row in rows]
        for alike in (True, False):
            positions = [position for position, begin in enumerate(begins) if begin is alike]
            skipped = len(self.shared) if alike else 0
            # A row that does not begin alike is run whole, in a program without the shared keys.
            unshared = [rows[position][skipped:] for position in positions]
            for part in batches(unshared, self._batch):
                states = self._states(part, self._shared_keys() if alike else None)
                chosen = [positions[index] for pack in part.packs for index in pack.positions]
                computed = [count for pack in part.packs for count in pack.computed]
                yield [_RunPrompt(*prompt) for prompt in zip(chosen, computed, states, strict=True)]

    def _next_tokens(self, prompts: Sequence[_RunPrompt]) -> NextTokens:
        states = np.stack([prompt.state for prompt in prompts])
        # Few sizes, of which each has a program.
        size = bucket(len(prompts), _PROMPTS_OF_LOGITS)
        spare = np.zeros((size - len(prompts), states.shape[1]), states.dtype)
        log_probs = np.asarray(self._predict(self._params, np.concatenate([states, spare])))
        return NextTokens(
            [prompt.position for prompt in prompts],
            log_probs[: len(prompts)],
            [prompt.computed for prompt in prompts],
        )

    def _begins_alike(self, row: Sequence[int]) -> bool:
        return len(row) > len(self.shared) and list(row[: len(self.shared)]) == self.shared

    def _shared_keys(self) -> EncodedPrompt:
        # Run at the first use, and kept for all later calls.
        if self._prompt is None:
            tokens = jnp.asarray([self.shared], jnp.int32)
            prefill = jax.jit(
                lambda params, row: self._model.prefill(params, row, jnp.ones(row.shape, bool))[1]
            )
            self._prompt = prefill(self._params, tokens)
        return self._prompt

    def _states(self, part: PackBatch, prompt: EncodedPrompt | None) -> np.ndarray:
        """States [prompts of the part, D] at the prompts' last tokens."""
        # Copies of a pack that is there: their states are cut off below.
        spare = [part.packs[0]] * (part.size - len(part.packs))
        arrays = prompt_trees.arrays(
            [*part.packs, *spare], part.width, part.capacity, self._model.config.pad_id
        )
        key = _ProgramKey(part.width, prompt is not None)
        if key not in self._programs:
            self._programs[key] = self._compile(prompt, arrays)
        states = np.asarray(self._programs[key](self._params, prompt, arrays))
        return np.concatenate(
            [states[n, : len(pack.positions)] for n, pack in enumerate(part.packs)]
        )

    def _compile(self, prompt: EncodedPrompt | None, arrays: PackArrays) -> jax.stages.Compiled:
        """The program of `_last_states` for arrays of these shapes.

        A function of `jax.jit` would keep its trace, and the heap what the compiler freed: 100 MB
        beside SmolLM2-135M, whose weights have 270.
        """
        program = jax.jit(self._last_states).lower(self._params, prompt, arrays).compile()
        gc.collect()
        return_freed_memory()
        return program

    def _last_states(
        self, params: Any, prompt: EncodedPrompt | None, packs: PackArrays
    ) -> jax.Array:
        """States [N, Q, D] at the last tokens of the prompts of N packs."""
        chex.assert_rank([packs.tokens, packs.last_places], 2)
        # One row of B, since the shared beginning is one prompt: [1, N, S].
        states = self._model.extend_trees(
            params, prompt, packs.tokens[None], packs.depths[None], packs.subtree_ends[None]
        ).after[0]
        # Logits of all tokens would be gigabytes.
        return jnp.take_along_axis(states, packs.last_places[:, :, None], axis=1)

    def _log_probs(self, params: Any, states: jax.Array) -> jax.Array:
        """Log-probabilities float32 [R, groups] after states [R, D]."""
        logits = self._model.logits_by_token(params, states)
        # [V, R]: the first axis is the vocabulary, see `LanguageModel.logits_by_token`.
        log_normaliser = jax.nn.logsumexp(logits, axis=0)
        # Groups of different sizes are padded: [groups, tokens, R], of which the tokens are added.
        of_groups = jnp.where(self._groups.valid[..., None], logits[self._groups.tokens], -jnp.inf)
        return (jax.nn.logsumexp(of_groups, axis=1) - log_normaliser).T
