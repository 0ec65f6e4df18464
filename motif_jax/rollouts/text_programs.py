"""Device programs that write many texts: all trunks side by side, one position a row."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from motif_jax.datasets.dialogues.items import Delimiters
from motif_jax.language import beams, caches, generation
from motif_jax.language import decoding as decodings
from motif_jax.language.copies import Copies
from motif_jax.language.decoding import Decoding, TokenFacts, TokenOutputs
from motif_jax.language.model import Cache, EncodedPrompt
from motif_jax.language.network import States
from motif_jax.language.sampling import Limits
from motif_jax.language.scoring import last_state


class Speaker(Hashable, Protocol):
    """An agent's networks as functions of their parameters; equal ones share their programs."""

    @property
    def copies(self) -> Copies:
        """Its trunks as one program."""

    @property
    def pooled(self) -> bool:
        """Whether `values` reads the mean of all states."""

    def join(self, params: Any) -> Any:
        """The trunks' parameters as `copies` takes them."""

    def outputs(self, params: Any, states: States) -> TokenOutputs:
        """The networks' outputs on states [C, ..., D]."""

    def values(self, params: Any, last: States, mean: jax.Array) -> jax.Array | None:
        """Of actions as a whole, a value float32 [...] each, from their last tokens' states and the mean after the last norm of all
        so far, both [C, ..., D]; None where tokens have values."""

    def prefix(self, params: Any, target_return: float) -> jax.Array | None:
        """An embedding [C, 1, 1, 1, D] that stands before every text; None for none."""


class DeviceTexts(NamedTuple):
    """The state of B texts on the device.

    Attributes:
      cache: of all trunks, one continuation a row.
      last: [C, B, D], the states of each text's last token.
      total: float32 [C, B, D], the sum of all tokens' states after the last norm.
    """

    cache: Cache
    last: States
    total: jax.Array


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
    """The loop's carry between tokens; leaves are [B, N, ...] or [C, B, N, ...]."""

    cache: Cache
    last: States
    total: jax.Array
    outputs: TokenOutputs
    full: jax.Array
    position: jax.Array
    facts: TokenFacts


class _Candidates(NamedTuple):
    tokens: jax.Array
    valid: jax.Array
    facts: TokenFacts
    scores: jax.Array
    cache: Cache
    last: States
    total: jax.Array


@functools.lru_cache(maxsize=8)
def programs(speaker: Speaker, decoding: Decoding, marks: Delimiters) -> Programs:
    """Compiled programs are kept while the same speaker continues in another session."""
    return Programs(speaker, decoding, marks)


class Programs:
    """The device programs."""

    def __init__(self, speaker: Speaker, decoding: Decoding, marks: Delimiters) -> None:
        self._speaker, self._copies, self._decoding = speaker, speaker.copies, decoding
        self._limits = Limits(decoding.max_tokens, (marks.action_end,))
        self._pad = marks.pad
        self._begin = jax.jit(self._begun, static_argnames=("batch", "capacity"))
        self.read = jax.jit(self._read, static_argnames="taken_back", donate_argnums=1)
        self.write = jax.jit(self._write, donate_argnums=1)
        self.pick = jax.jit(self._picked)
        self.squeeze = jax.jit(self._squeezed, static_argnames="capacity")

    def begin(self, params: Any, batch: int, capacity: int) -> tuple[DeviceTexts, int]:
        """Texts without a token, and how many positions stand before all of them."""
        ahead = self._speaker.prefix(params, self._decoding.target_return) is not None
        # Copied: what is given away must not lie in two places, and an empty cache's layers are one array.
        return jax.tree.map(jnp.copy, self._begin(params, batch=batch, capacity=capacity)), int(ahead)

    def _begun(self, params: Any, batch: int, capacity: int) -> DeviceTexts:
        joined = self._speaker.join(params)
        cache = self._copies.start(joined, batch, 1, capacity)
        embedded = self._speaker.prefix(params, self._decoding.target_return)
        if embedded is None:
            shape = self._copies.embed(joined, jnp.zeros((batch,), jnp.int32)).shape
            nothing = jnp.zeros(shape, jnp.float32)
            return DeviceTexts(cache, States(nothing, nothing), nothing)
        embedded = jnp.broadcast_to(embedded, (len(embedded), batch, 1, 1, embedded.shape[-1]))
        there = jnp.ones((batch, 1, 1), bool)
        states, cache = self._copies.extend(joined, None, None, there, cache, embedded)  # type: ignore[assignment]
        last = States(*(x[:, :, 0, 0].astype(jnp.float32) for x in states))
        return DeviceTexts(cache, last, last.after)

    def _read(
        self,
        params: Any,
        now: DeviceTexts,
        tokens: jax.Array,
        valid: jax.Array,
        keep: jax.Array,
        taken_back: bool,
    ) -> DeviceTexts:
        cache, total = now.cache, now.total
        if taken_back:
            cache = self._copies.mapped(functools.partial(caches.shortened, keep=keep), cache)
            # Whose mean counts is read from its start, behind what stands before all texts.
            total = jnp.where((keep < now.cache.written[:, 0])[:, None], 0.0, total)
        states, cache = self._copies.extend(  # type: ignore[assignment]
            self._speaker.join(params), None, tokens[:, None], valid[:, None], cache
        )
        rows = States(*(x[:, :, 0] for x in states))
        fresh = jax.vmap(last_state, (0, None))(rows, valid)
        said = valid.any(axis=1)[:, None]
        last = States(
            *(jnp.where(said, a.astype(jnp.float32), b) for a, b in zip(fresh, now.last, strict=True))
        )
        return DeviceTexts(cache, last, total + jnp.where(valid[..., None], rows.after, 0.0).sum(axis=2))

    def _write(
        self, params: Any, now: DeviceTexts, keys: jax.Array, rows: jax.Array
    ) -> tuple[DeviceTexts, Actions]:
        decoding = self._decoding
        prompt = self._copies.mapped(caches.as_prompt, now.cache)
        write = functools.partial(self._candidates, params, now, prompt, rows)
        if decoding.batches == 1:
            best = _best(write(keys), self._copies)
        else:
            each = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, decoding.batches))(keys), 1, 0)
            shape = jax.eval_shape(lambda key: _best(write(key), self._copies), keys)
            begun = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
            begun = begun._replace(scores=jnp.full_like(begun.scores, -jnp.inf))
            best = jax.lax.fori_loop(
                0,
                decoding.batches,
                lambda i, kept: _better(kept, _best(write(each[i]), self._copies), self._copies),
                begun,
            )
        cache = self._copies.mapped(caches.grown, now.cache, best.cache)
        texts = DeviceTexts(cache, States(*(x[:, :, 0] for x in best.last)), best.total[:, :, 0])
        facts, valid = jax.tree.map(lambda leaf: leaf[:, 0], (best.facts, best.valid))
        return texts, Actions(best.tokens[:, 0], valid, facts, decodings.divergence(facts, valid, decoding))

    def _candidates(
        self, params: Any, now: DeviceTexts, prompt: EncodedPrompt, rows: jax.Array, keys: jax.Array
    ) -> _Candidates:
        """Continues each text `width` times; rows that are False stay as they are."""
        decoding, width = self._decoding, self._decoding.width
        joined, batch = self._speaker.join(params), len(rows)
        shape = (*now.total.shape[:2], width, now.total.shape[-1])
        last = States(*(jnp.broadcast_to(x[:, :, None], shape) for x in now.last))
        outputs = self._speaker.outputs(params, last)
        size = (batch, width, decoding.max_tokens)
        number, whole = jnp.zeros(size, jnp.float32), jnp.zeros(size, jnp.int32)
        carry = _Carry(
            cache=self._copies.start(joined, batch, width, decoding.max_tokens),
            last=last,
            total=jnp.broadcast_to(now.total[:, :, None], shape),
            outputs=outputs,
            full=decodings.steered(outputs, decoding, self._pad),
            position=jnp.zeros((), jnp.int32),
            facts=TokenFacts(number, number, number, number, whole, whole),
        )

        def step(carry: _Carry, tokens: jax.Array, valid: jax.Array) -> tuple[jax.Array, _Carry]:
            new = decodings.token_facts(carry.outputs, carry.full, tokens, self._pad)
            facts = TokenFacts(
                *(a.at[..., carry.position].set(jnp.where(valid, b, jnp.zeros_like(b))) for a, b in zip(carry.facts, new, strict=True))
            )  # fmt: skip
            states, cache = self._copies.extend(
                joined, prompt, tokens[..., None], valid[..., None], carry.cache
            )
            there = valid[..., None]
            found = [x[:, :, :, 0].astype(jnp.float32) for x in states]
            last = States(*(jnp.where(there, a, b) for a, b in zip(found, carry.last, strict=True)))
            total = carry.total + jnp.where(there, found[1], 0.0)
            outputs = self._speaker.outputs(params, last)
            full = decodings.steered(outputs, decoding, self._pad)
            return full, _Carry(cache, last, total, outputs, full, carry.position + 1, facts)  # type: ignore[arg-type]

        if decoding.kind == "beam":
            # Rows that are not asked for are searched too, and left out: all beams of a row run as long as any of them.
            found = beams.search(step, self._reordered, carry, carry.full, self._limits, self._pad)
            valid = found.valid & rows[:, None, None]
            end, scores = self._at(found.carry, rows, now), found.scores
            return _Candidates(found.tokens, valid, end.facts, scores, end.cache, end.last, end.total)
        each = jax.vmap(lambda key: jax.random.split(key, width))(keys) if width > 1 else keys[:, None]
        ended = jnp.broadcast_to(~rows[:, None], (batch, width))
        written = generation.write(
            step, carry, carry.full, each, self._limits, decoding.draws, self._pad, ended
        )
        end = written.carry
        count = (end.cache.written + now.cache.written).astype(jnp.float32)[..., None]
        values = (
            None if decoding.kind != "rerank" else self._speaker.values(params, end.last, end.total / count)
        )
        if values is None:
            scores = decodings.candidate_scores(end.facts, written.valid, decoding)
        else:
            scores = decodings.utterance_scores(values, end.facts, written.valid, decoding)
        return _Candidates(written.tokens, written.valid, end.facts, scores, end.cache, end.last, end.total)

    def _at(self, end: _Carry, rows: jax.Array, now: DeviceTexts) -> _Carry:
        """The end of a search, with rows that were not asked for as they were."""
        cache = end.cache._replace(
            valid=end.cache.valid & rows[:, None, None], written=end.cache.written * rows[:, None]
        )
        stays = rows[:, None, None]
        last = States(*(jnp.where(stays, a, b[:, :, None]) for a, b in zip(end.last, now.last, strict=True)))
        return end._replace(cache=cache, last=last, total=jnp.where(stays, end.total, now.total[:, :, None]))

    def _reordered(self, carry: _Carry, index: jax.Array) -> _Carry:
        """`search`'s reorder: beam `index[b, k]` in the place of the k-th."""
        own, trunks = (
            functools.partial(caches.taken, index=index, axis=1),
            functools.partial(caches.taken, index=index, axis=2),
        )
        return _Carry(
            self._copies.rows(carry.cache, index),
            jax.tree.map(trunks, carry.last),
            trunks(carry.total),
            jax.tree.map(own, carry.outputs),
            own(carry.full),
            carry.position,
            jax.tree.map(own, carry.facts),
        )

    def _picked(self, now: DeviceTexts, places: jax.Array) -> DeviceTexts:
        cache = self._copies.mapped(lambda each: caches.rows_of(each, places), now.cache)
        return DeviceTexts(cache, States(*(x[:, places] for x in now.last)), now.total[:, places])

    def _squeezed(self, now: DeviceTexts, capacity: int) -> DeviceTexts:
        return now._replace(
            cache=self._copies.mapped(functools.partial(caches.squeezed, capacity=capacity), now.cache)
        )


def _best(found: _Candidates, copies: Copies) -> _Candidates:
    """The best candidate of each row; the axis of candidates stays, with one."""
    index = jnp.argmax(found.scores, axis=1)[:, None].astype(jnp.int32)
    own, trunks = (
        functools.partial(caches.taken, index=index, axis=1),
        functools.partial(caches.taken, index=index, axis=2),
    )
    return _Candidates(
        own(found.tokens),
        own(found.valid),
        jax.tree.map(own, found.facts),
        own(found.scores),
        copies.rows(found.cache, index),
        jax.tree.map(trunks, found.last),
        trunks(found.total),
    )


def _better(kept: _Candidates, new: _Candidates, copies: Copies) -> _Candidates:
    """The better of two, row by row; the first if they are equal."""
    index = (new.scores > kept.scores).astype(jnp.int32)  # [B, 1]

    def joined(a: jax.Array, b: jax.Array, axis: int) -> jax.Array:
        return caches.taken(jnp.concatenate([a, b], axis=axis), index, axis)

    own, trunks = functools.partial(joined, axis=1), functools.partial(joined, axis=2)
    return _Candidates(
        own(kept.tokens, new.tokens),
        own(kept.valid, new.valid),
        jax.tree.map(own, kept.facts, new.facts),
        own(kept.scores, new.scores),
        copies.mapped(lambda a, b: caches.beside(a, b).rows(index), kept.cache, new.cache),
        jax.tree.map(trunks, kept.last, new.last),
        trunks(kept.total, new.total),
    )
