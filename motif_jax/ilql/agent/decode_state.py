"""The decoding state of texts: keys and values in every trunk, and the states that heads read."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motif_jax.ilql.agent.stacked_trunks import StackedModels, over_trunks
from motif_jax.lm import generation
from motif_jax.lm.model import Cache, EncodedPrompt
from motif_jax.lm.network import States


class DecodeState(NamedTuple):
    """N continuations of each of B texts, in C trunks; a text alone is one continuation without a
    prompt.

    Attributes:
      cache: of all trunks, for the continuations alone.
      last: float32 [C, B, N, D], the states of each last token; 0 before the first.
      total: float32 [C, B, N, D], sum of the states after the last norm over the tokens of text and
          continuation.
    """

    cache: Cache
    last: States
    total: jax.Array

    @classmethod
    def start(cls, models: StackedModels, params: Any, batch: int, capacity: int) -> DecodeState:
        """`batch` empty texts with room for `capacity` tokens."""
        zeros = jnp.zeros((models.count(params), batch, 1, models.model.config.width))
        return cls(models.start(params, batch, 1, capacity), States(zeros, zeros), zeros)

    def extend(
        self,
        models: StackedModels,
        params: Any,
        prompt: EncodedPrompt | None,
        tokens: jax.Array | None,
        valid: jax.Array,
        embeddings: jax.Array | None = None,
    ) -> DecodeState:
        """Appends tokens, see `StackedModels.extend`; a continuation without valid tokens stays as
        it is.
        """
        states, cache = models.extend(params, prompt, tokens, valid, self.cache, embeddings)
        states = States(*(leaf.astype(jnp.float32) for leaf in states))
        count = valid.shape[2]
        # [B, N], where each row's last token stands: shorter rows are padded on the right.
        from_end = jnp.argmax(valid[..., ::-1], axis=2)
        last_valid = (count - 1 - from_end)[None, ..., None, None]
        has_tokens = valid.any(axis=2)[..., None]

        def last(new: jax.Array, old: jax.Array) -> jax.Array:
            if count > 1:
                new = jnp.take_along_axis(new, last_valid, axis=3)
            return jnp.where(has_tokens, new[..., 0, :], old)

        # [C, B, N, S, D] is summed over its tokens S.
        total = self.total + jnp.where(valid[..., None], states.after, 0.0).sum(axis=3)
        return DecodeState(cache, jax.tree.map(last, states, self.last), total)

    def branch(self, models: StackedModels, params: Any, width: int, capacity: int) -> DecodeState:
        """`width` empty continuations of each text, which read that text as `self.prompt()`."""

        def wide(leaf: jax.Array) -> jax.Array:
            # [C, B, 1, D] becomes [C, B, N, D]: continuations begin at their text's last state.
            return jnp.broadcast_to(leaf, (*leaf.shape[:2], width, leaf.shape[3]))

        cache = models.start(params, self.total.shape[1], width, capacity)
        return DecodeState(cache, jax.tree.map(wide, self.last), wide(self.total))

    def prompt(self) -> EncodedPrompt:
        """The texts as prompts of their continuations."""
        return over_trunks(generation.as_prompt, self.cache)

    def grow(self, chosen: DecodeState) -> DecodeState:
        """Appends one chosen continuation to each text."""
        # `last` and `total` of a continuation are of its text, too; its cache is not.
        return chosen._replace(cache=over_trunks(generation.grown, self.cache, chosen.cache))

    def pick(self, index: jax.Array) -> DecodeState:
        """Takes continuations `index` int32 [B, M] of each text."""
        take = functools.partial(generation.taken, index=index, axis=2)
        cache = over_trunks(lambda cache: generation.picked(cache, index), self.cache)
        return DecodeState(cache, jax.tree.map(take, self.last), take(self.total))

    def join_continuations(self, other: DecodeState) -> DecodeState:
        """The continuations of both states, [C, B, N + N', ...]."""

        def join(ours: jax.Array, theirs: jax.Array) -> jax.Array:
            return jnp.concatenate([ours, theirs], axis=2)

        cache = over_trunks(generation.join_continuations, self.cache, other.cache)
        return DecodeState(
            cache, jax.tree.map(join, self.last, other.last), join(self.total, other.total)
        )

    def rows(self, indices: jax.Array) -> DecodeState:
        """The texts `indices` int32 [B'], in this order."""
        cache = over_trunks(lambda cache: generation.rows_of(cache, indices), self.cache)
        last = States(*(leaf[:, indices] for leaf in self.last))
        return DecodeState(cache, last, self.total[:, indices])

    def shorten(self, keep: jax.Array) -> DecodeState:
        """Keeps the first `keep` int32 [B] tokens of each text; the total of a shortened text is
        0.
        """
        # A sum cannot be shortened: an agent that reads means reads such a text from its start.
        total = jnp.where((keep[:, None] < self.cache.written)[..., None], 0.0, self.total)
        cache = over_trunks(lambda cache: generation.shortened(cache, keep), self.cache)
        return self._replace(cache=cache, total=total)

    def squeeze(self, capacity: int) -> DecodeState:
        """Drops unused slots between tokens, and leaves `capacity` slots for each text."""
        return self._replace(
            cache=over_trunks(lambda cache: generation.squeezed(cache, capacity), self.cache)
        )
