"""Device programs that write many texts: all trunks side by side, one position a row."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.ilql.agent import decoding as decodings
from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.decode_state import DecodeState
from motif_jax.ilql.agent.decoding import Decoding, TokenFacts, TokenOutputs
from motif_jax.ilql.dialogues.items import Delimiters
from motif_jax.lm import beams, caches, generation
from motif_jax.lm.model import EncodedPrompt
from motif_jax.lm.sampling import Limits


class Actions(NamedTuple):
    """Written actions, a row each: on the device, and then as numpy arrays.

    Attributes:
      tokens: int32 [B, M].
      valid: bool [B, M], up to and with the token that ended the action.
      facts: of the tokens [B, M].
      divergence: float32 [B], see `decoding.divergence`.
    """

    tokens: Any
    valid: Any
    facts: TokenFacts
    divergence: Any


class _Carry(NamedTuple):
    """The loop's carry between tokens; leaves beside the state's are [B, N, ...]."""

    state: DecodeState
    outputs: TokenOutputs
    full: jax.Array
    position: jax.Array
    facts: TokenFacts


class _Candidates(NamedTuple):
    """Leaves beside the state's are [B, N, ...]."""

    state: DecodeState
    tokens: jax.Array
    valid: jax.Array
    facts: TokenFacts
    scores: jax.Array


@functools.lru_cache(maxsize=8)  # equal decoders share their compiled programs
class Programs:
    """The device programs."""

    def __init__(self, decoder: AgentDecoder, decoding: Decoding, marks: Delimiters) -> None:
        self._decoder, self._models, self._decoding = decoder, decoder.stacked, decoding
        self._limits = Limits(decoding.max_tokens, (marks.action_end,))
        self._pad = marks.pad
        self._begin = jax.jit(self._begun, static_argnames=("batch", "capacity"))
        self.read = jax.jit(self._read, static_argnames="taken_back", donate_argnums=1)
        self.write = jax.jit(self._write, donate_argnums=1)
        self.pick = jax.jit(DecodeState.rows)
        self.squeeze = jax.jit(DecodeState.squeeze, static_argnames="capacity")

    def begin(self, params: Any, batch: int, capacity: int) -> DecodeState:
        """Texts without a token."""
        # Copied: what is given away must not lie in two places, and an empty cache's layers are one array.
        return jax.tree.map(jnp.copy, self._begin(params, batch=batch, capacity=capacity))

    def _begun(self, params: Any, batch: int, capacity: int) -> DecodeState:
        joined = self._decoder.join(params)
        state = DecodeState.start(self._models, joined, batch, capacity)
        embedded = self._decoder.prefix(params, self._decoding.target_return)
        if embedded is None:
            return state
        embedded = jnp.broadcast_to(embedded, (len(embedded), batch, 1, 1, embedded.shape[-1]))
        return state.extend(self._models, joined, None, None, jnp.ones((batch, 1, 1), bool), embedded)

    def _read(
        self,
        params: Any,
        now: DecodeState,
        tokens: jax.Array,
        valid: jax.Array,
        keep: jax.Array,
        taken_back: bool,
    ) -> DecodeState:
        if taken_back:
            # Whose mean counts is read from its start, behind what stands before all texts.
            now = now.shorten(keep)
        return now.extend(self._models, self._decoder.join(params), None, tokens[:, None], valid[:, None])

    def _write(
        self, params: Any, now: DecodeState, keys: jax.Array, rows: jax.Array
    ) -> tuple[DecodeState, Actions]:
        decoding = self._decoding
        write = functools.partial(self._candidates, params, now, now.prompt(), rows)
        if decoding.batches == 1:
            best = _best(write(keys))
        else:
            each = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, decoding.batches))(keys), 1, 0)
            shape = jax.eval_shape(lambda key: _best(write(key)), keys)
            begun = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
            begun = begun._replace(scores=jnp.full_like(begun.scores, -jnp.inf))
            best = jax.lax.fori_loop(
                0, decoding.batches, lambda i, kept: _best(_beside(kept, _best(write(each[i])))), begun
            )
        facts, valid = jax.tree.map(lambda leaf: leaf[:, 0], (best.facts, best.valid))
        actions = Actions(best.tokens[:, 0], valid, facts, decodings.divergence(facts, valid, decoding))
        return now.grow(best.state), actions

    def _candidates(
        self, params: Any, now: DecodeState, prompt: EncodedPrompt, rows: jax.Array, keys: jax.Array
    ) -> _Candidates:
        """Continues each text `width` times; rows that are False stay as they are."""
        decoding, width = self._decoding, self._decoding.width
        joined, size = self._decoder.join(params), (len(rows), width, decoding.max_tokens)
        state = now.branch(self._models, joined, width, decoding.max_tokens)
        outputs = self._decoder.outputs(params, state.last)
        number, whole = jnp.zeros(size, jnp.float32), jnp.zeros(size, jnp.int32)
        facts = TokenFacts(number, number, number, number, whole, whole)
        full = decodings.steered(outputs, decoding, self._pad)
        carry = _Carry(state, outputs, full, jnp.zeros((), jnp.int32), facts)

        def step(carry: _Carry, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, _Carry]:
            new = decodings.token_facts(carry.outputs, carry.full, tokens, self._pad)
            facts = TokenFacts(
                *(a.at[..., carry.position].set(jnp.where(valid, b, jnp.zeros_like(b))) for a, b in zip(carry.facts, new, strict=True))
            )  # fmt: skip
            state = carry.state.extend(self._models, joined, prompt, tokens[..., None], valid[..., None])
            outputs = self._decoder.outputs(params, state.last)
            full = decodings.steered(outputs, decoding, self._pad)
            return full, _Carry(state, outputs, full, carry.position + 1, facts)

        ended = jnp.broadcast_to(~rows[:, None], (len(rows), width))
        if decoding.kind == "beam":
            beam = beams.search(step, _reordered, carry, carry.full, self._limits, self._pad, ended)
            return _Candidates(beam.carry.state, beam.tokens, beam.valid, beam.carry.facts, beam.scores)
        each = jax.vmap(lambda key: jax.random.split(key, width))(keys) if width > 1 else keys[:, None]
        written = generation.write(
            step, carry, carry.full, each, self._limits, decoding.draws, self._pad, ended
        )
        end, facts, values = written.carry.state, written.carry.facts, None
        if decoding.kind == "rerank":
            count = (end.cache.written + now.cache.written).astype(jnp.float32)[..., None]
            values = self._decoder.values(params, end.last, end.total / count)
        if values is None:
            scores = decodings.candidate_scores(facts, written.valid, decoding)
        else:
            scores = decodings.utterance_scores(values, facts, written.valid, decoding)
        return _Candidates(end, written.tokens, written.valid, facts, scores)


def _taken(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: caches.taken(leaf, index, 1), tree)


def _reordered(carry: _Carry, index: jax.Array) -> _Carry:
    """`beams.search`'s reorder."""
    outputs, full, facts = _taken((carry.outputs, carry.full, carry.facts), index)
    return _Carry(carry.state.pick(index), outputs, full, carry.position, facts)


def _best(found: _Candidates) -> _Candidates:
    """The best candidate of each row, the first of equal ones; the axis of candidates stays, with one."""
    index = jnp.argmax(found.scores, axis=1)[:, None].astype(jnp.int32)
    return _Candidates(found.state.pick(index), *_taken(tuple(found[1:]), index))


def _beside(a: _Candidates, b: _Candidates) -> _Candidates:
    rest = jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=1), tuple(a[1:]), tuple(b[1:]))
    return _Candidates(a.state.beside(b.state), *rest)
