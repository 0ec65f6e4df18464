"""Probabilities of the token right after prompts that begin alike: what several prompts begin with
is run once.

The beginning that all prompts share is a prompt of one row (`LanguageModel.prefill`). The rest of
the prompts is packed as trees, which are its continuations (`LanguageModel.extend_trees`): a token
that several prompts begin with is run once for all of them. Prompts are sorted, so that those with
a common beginning are neighbours, and each adds what the one before it does not have. A pack has a
fixed number of tokens, of one or several trees; a prompt that does not fit begins a new pack, where
its beginning stands again.
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
from motif_jax.lm.model import EncodedPrompt, LanguageModel
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

Tokens = Sequence[int]


class Pack(NamedTuple):
    """Prompts that run together.

    Attributes:
      positions: of the prompts in the caller's list.
      tokens: of all prompts; what they share stands once.
      paths: for each prompt the places of its tokens in `tokens`, ascending.
      computed: for each prompt the number of its tokens that no prompt before it in the pack has.
    """

    positions: list[int]
    tokens: list[int]
    paths: list[list[int]]
    computed: list[int]


class PackArrays(NamedTuple):
    """Packs for a program; numpy or jax arrays.

    Attributes:
      tokens: int32 [N, S].
      depths: int32 [N, S], how many tokens of its prompt stand before a token.
      subtree_ends: int32 [N, S], the place after the last token that comes after a token in some
        prompt. Prompts are added one after the other, so token i looks at token j where
        j <= i < subtree_ends[j]. 0 for padding.
      last_places: int32 [N, Q], the place of each prompt's last token; 0 where a pack has fewer
        prompts.
    """

    tokens: Any
    depths: Any
    subtree_ends: Any
    last_places: Any


def shared_length(rows: Sequence[Tokens]) -> int:
    """The number of tokens at the beginning that all rows share."""
    length = 0
    # The shortest row ends the columns.
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length


def packed(prompts: Sequence[Tokens], width: int, capacity: int) -> list[Pack]:
    """Packs of at most `width` tokens and `capacity` prompts, of which none is empty or longer than
    `width`.
    """
    assert all(0 < len(prompt) <= width for prompt in prompts)
    packs: list[Pack] = []
    for position in sorted(range(len(prompts)), key=lambda position: list(prompts[position])):
        prompt = prompts[position]
        # Of all prompts before it, its neighbour in the sorted order shares most with it.
        shared = shared_length([prompts[packs[-1].positions[-1]], prompt]) if packs else 0
        if not packs or not _fits(packs[-1], len(prompt) - shared, width, capacity):
            packs.append(Pack([], [], [], []))
            # In a new pack nothing has been run that it could share.
            shared = 0
        pack = packs[-1]
        # The places of the shared tokens are the neighbour's, its own tokens stand behind all
        # others.
        path = pack.paths[-1][:shared] if shared else []
        path += range(len(pack.tokens), len(pack.tokens) + len(prompt) - shared)
        pack.positions.append(position)
        pack.tokens.extend(prompt[shared:])
        pack.paths.append(path)
        pack.computed.append(len(prompt) - shared)
    return packs


def _fits(pack: Pack, fresh: int, width: int, capacity: int) -> bool:
    return len(pack.positions) < capacity and len(pack.tokens) + fresh <= width


def pack_arrays(packs: Sequence[Pack], width: int, capacity: int, pad: int = 0) -> PackArrays:
    """The packs, each with S = `width` tokens and room for Q = `capacity` prompts."""
    count = len(packs)
    tokens = np.full((count, width), pad, np.int32)
    depths = np.zeros((count, width), np.int32)
    subtree_ends = np.zeros((count, width), np.int32)
    last_places = np.zeros((count, capacity), np.int32)
    for number, pack in enumerate(packs):
        tokens[number, : len(pack.tokens)] = pack.tokens
        # The number of tokens of the pack once each prompt is added, which is where its own end.
        sizes = np.cumsum(pack.computed)
        for index, path in enumerate(pack.paths):
            depths[number, path] = np.arange(len(path))
            # A later prompt that goes through a token writes a later place.
            subtree_ends[number, path] = sizes[index]
            last_places[number, index] = path[-1]
    return PackArrays(tokens, depths, subtree_ends, last_places)


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
    return max(0, min(shared_length(rows), min(map(len, rows)) - 1))


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
        packs = packed([prompts[position] for position in positions], width, capacity)
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
        arrays = pack_arrays(
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
