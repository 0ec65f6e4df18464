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
from motif_jax.lm import beams, generation
from motif_jax.lm.generation import Limits
from motif_jax.lm.model import EncodedPrompt


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
    outputs: TokenOutputs  # of the agent at the newest token
    steered: jax.Array  # float32 [B, N, V], the logits that the next token is drawn from
    position: jax.Array  # int32 scalar, of the next token in the action
    facts: TokenFacts  # [B, N, M], zeros from `position` on


class _Candidates(NamedTuple):
    """N continuations of each of B texts; leaves beside the state's are [B, N, ...]."""

    state: DecodeState
    tokens: jax.Array
    valid: jax.Array
    facts: TokenFacts
    scores: jax.Array  # float32 [B, N]; the greatest is the action


@functools.lru_cache(maxsize=8)  # equal decoders share their compiled programs
class Programs:
    """The device programs of one decoder: `begin`, `read`, `write`, `pick`, `squeeze`, each from a
    `DecodeState` to the next.
    """

    def __init__(self, decoder: AgentDecoder, decoding: Decoding, marks: Delimiters) -> None:
        self._decoder = decoder
        self._models = decoder.stacked
        self._decoding = decoding
        self._limits = Limits(decoding.max_tokens, (marks.action_end,))
        self._pad = marks.pad
        self._begin = jax.jit(self._start, static_argnames=("batch", "capacity"))
        self.read = jax.jit(self._read, static_argnames="shortens", donate_argnums=1)
        self.write = jax.jit(self._write, donate_argnums=1)
        self.pick = jax.jit(DecodeState.rows)
        self.squeeze = jax.jit(DecodeState.squeeze, static_argnames="capacity")

    def begin(self, params: Any, batch: int, capacity: int) -> DecodeState:
        """Texts without a token."""
        # Copied, since `read` takes over the state's memory: no array may stand in it twice, and an
        # empty cache's layers are one array.
        return jax.tree.map(jnp.copy, self._begin(params, batch=batch, capacity=capacity))

    def _start(self, params: Any, batch: int, capacity: int) -> DecodeState:
        joined = self._decoder.join(params)
        state = DecodeState.start(self._models, joined, batch, capacity)
        prefix = self._decoder.prefix(params, self._decoding.target_return)
        if prefix is None:
            return state
        # [C, B, 1, 1, D]: one token of one continuation, the same in every row.
        embeddings = jnp.broadcast_to(prefix, (len(prefix), batch, 1, 1, prefix.shape[-1]))
        valid = jnp.ones((batch, 1, 1), bool)
        return state.extend(self._models, joined, None, None, valid, embeddings)

    def _read(
        self,
        params: Any,
        state: DecodeState,
        tokens: jax.Array,
        valid: jax.Array,
        keep: jax.Array,
        shortens: bool,
    ) -> DecodeState:
        """Appends tokens int32 [B, S] to the first `keep` int32 [B] tokens of each text;
        `shortens`: `keep` leaves tokens out.
        """
        if shortens:
            state = state.shorten(keep)
        joined = self._decoder.join(params)
        return state.extend(self._models, joined, None, tokens[:, None], valid[:, None])

    def _write(
        self, params: Any, state: DecodeState, keys: jax.Array, rows: jax.Array
    ) -> tuple[DecodeState, Actions]:
        """Appends an action to each text of `rows` bool [B]; `keys` [B] are for the draws."""
        decoding = self._decoding
        prompt = state.prompt()

        def best_of_batch(keys: jax.Array) -> _Candidates:
            # `prompt` is shared by all candidates of a row and by all batches of them.
            return _best(self._candidates(params, state, prompt, rows, keys))

        if decoding.batches == 1:
            best = best_of_batch(keys)
        else:
            # Batches one after the other, so that memory holds the candidates of one and the best
            # so far.
            split = jax.vmap(lambda key: jax.random.split(key, decoding.batches))(keys)
            keys_of_batches = jnp.moveaxis(split, 1, 0)
            shapes = jax.eval_shape(best_of_batch, keys)
            # Nothing yet, at a score below every candidate's.
            start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            start = start._replace(scores=jnp.full_like(start.scores, -jnp.inf))
            best = jax.lax.fori_loop(
                0,
                decoding.batches,
                lambda i, best: _best(_join(best, best_of_batch(keys_of_batches[i]))),
                start,
            )
        facts, valid = jax.tree.map(lambda leaf: leaf[:, 0], (best.facts, best.valid))
        actions = Actions(
            best.tokens[:, 0], valid, facts, decodings.divergence(facts, valid, decoding)
        )
        return state.grow(best.state), actions

    def _candidates(
        self,
        params: Any,
        texts: DecodeState,
        prompt: EncodedPrompt,
        rows: jax.Array,
        keys: jax.Array,
    ) -> _Candidates:
        """Continues each text `width` times; rows that are False stay as they are."""
        decoding = self._decoding
        width = decoding.width
        joined = self._decoder.join(params)
        carry = self._start_action(
            params, texts.branch(self._models, joined, width, decoding.max_tokens)
        )

        def step(carry: _Carry, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, _Carry]:
            def record(facts: jax.Array, new: jax.Array) -> jax.Array:
                return facts.at[..., carry.position].set(jnp.where(valid, new, jnp.zeros_like(new)))

            # Of the outputs that `tokens` were drawn from, before these are run.
            new_facts = decodings.token_facts(carry.outputs, carry.steered, tokens, self._pad)
            facts = jax.tree.map(record, carry.facts, new_facts)
            state = carry.state.extend(
                self._models, joined, prompt, tokens[..., None], valid[..., None]
            )
            outputs = self._decoder.outputs(params, state.last)
            steered = decodings.steered(outputs, decoding, self._pad)
            return steered, _Carry(state, outputs, steered, carry.position + 1, facts)

        # [B, N]: rows that do not act count as ended, and write padding alone.
        ended = jnp.broadcast_to(~rows[:, None], (len(rows), width))
        if decoding.kind == "beam":
            beam = beams.search(
                step, _reorder, carry, carry.steered, self._limits, self._pad, ended
            )
            return _Candidates(
                beam.carry.state, beam.tokens, beam.valid, beam.carry.facts, beam.scores
            )

        keys_of_candidates = keys[:, None]  # one candidate draws by the row's key itself
        if width > 1:
            keys_of_candidates = jax.vmap(lambda key: jax.random.split(key, width))(keys)
        written = generation.write(
            step,
            carry,
            carry.steered,
            keys_of_candidates,
            self._limits,
            decoding.draws,
            self._pad,
            ended,
        )
        state = written.carry.state
        facts = written.carry.facts
        values = None
        if decoding.kind == "rerank":
            # Tokens of text and action, over which CHAI's mean is taken.
            count = (state.cache.written + texts.cache.written).astype(jnp.float32)[..., None]
            values = self._decoder.values(params, state.last, state.total / count)
        if values is None:
            scores = decodings.summed_scores(facts, written.valid, decoding)
        else:
            scores = decodings.utterance_scores(values, facts, written.valid, decoding)
        return _Candidates(state, written.tokens, written.valid, facts, scores)

    def _start_action(self, params: Any, state: DecodeState) -> _Carry:
        """The carry before the first token of the continuations of `state`."""
        decoding = self._decoding
        batch, width = state.total.shape[1:3]
        shape = (batch, width, decoding.max_tokens)
        number = jnp.zeros(shape, jnp.float32)
        token = jnp.zeros(shape, jnp.int32)
        facts = TokenFacts(
            steered=number, policy=number, q=number, v=number, by_policy=token, by_values=token
        )
        outputs = self._decoder.outputs(params, state.last)
        steered = decodings.steered(outputs, decoding, self._pad)
        return _Carry(state, outputs, steered, jnp.zeros((), jnp.int32), facts)


def _take(tree: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: generation.taken(leaf, index, 1), tree)


def _reorder(carry: _Carry, index: jax.Array) -> _Carry:
    """Takes the beams `index` int32 [B, N], for `beams.search`."""
    outputs, steered, facts = _take((carry.outputs, carry.steered, carry.facts), index)
    return _Carry(carry.state.pick(index), outputs, steered, carry.position, facts)


def _best(candidates: _Candidates) -> _Candidates:
    """The best candidate of each row, the first of equal ones; the axis of candidates stays, with
    one.
    """
    index = jnp.argmax(candidates.scores, axis=1)[:, None].astype(jnp.int32)
    state, *rest = candidates
    return _Candidates(state.pick(index), *_take(rest, index))


def _join(first: _Candidates, second: _Candidates) -> _Candidates:
    """The candidates of both, side by side."""
    state, *rest = first
    other_state, *other_rest = second
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), rest, other_rest)
    return _Candidates(state.join_continuations(other_state), *joined)
