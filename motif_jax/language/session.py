"""Texts that only grow, such as games and dialogues: their keys and values are kept from turn to turn.

Of a decoder's texts alone: an encoder sees the whole text again whenever it grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language import generation
from motif_jax.language.generation import Adjust
from motif_jax.language.layers import KeyValues
from motif_jax.language.model import Cache, LanguageModel
from motif_jax.language.network import States
from motif_jax.language.sampling import Limits, Sampling
from motif_jax.language.scoring import last_state
from motif_jax.language.tokens import bucket, padded
from motif_jax.support.errors import UserError


class Ends(NamedTuple):
    """The states at the ends of the texts.

    Attributes:
      states: [B, D] of each text's last token, before and after the last norm.
      logits: float32 [B, V] of what comes next, as the hook makes them.
    """

    states: States
    logits: jax.Array


class DecodeSession:
    """B texts, each at its own length, read and written turn by turn.

    Args:
      model, params: of the network, a decoder alone.
      batch: B.
      capacity: tokens that there is room for at first; it grows when they are more.
      adjust: changes the logits.

    Attributes:
      texts: the tokens so far.
      ends: see `Ends`; None before anything was read.

    Raises:
      UserError: the model has an encoder, or none that writes.
    """

    def __init__(
        self, model: LanguageModel, params: Any, batch: int, capacity: int = 256, adjust: Adjust | None = None
    ) -> None:
        if model.config.encoder_layers or not model.config.has_decoder:
            raise UserError(
                f"a {model.config.architecture} model keeps nothing of a text that grows: it takes a decoder alone"
            )
        self._model, self._params, self._adjust = model, params, adjust
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        self.ends: Ends | None = None
        # Copied: what is given away must not lie in two places, and an empty cache's layers are one array.
        self._cache, self._slots = jax.tree.map(jnp.copy, model.start(batch, 1, capacity)), 0
        self._read = jax.jit(self._run, donate_argnames="cache")
        self._write = jax.jit(self._continue, static_argnames=("limits", "sampling"), donate_argnames="cache")
        self._squeeze = jax.jit(squeezed, static_argnames="capacity")

    def read(self, rows: Sequence[Sequence[int]]) -> Ends:
        """Appends tokens to each text, any number of them.

        Raises:
          UserError: a text becomes longer than the model has positions, or has no token yet.
        """
        self._require(rows)
        if any(not text and not row for text, row in zip(self.texts, rows, strict=True)):
            raise UserError("a text of the session has no tokens yet, and got none")
        tokens, valid = padded(rows, bucket(max(1, *map(len, rows))), self._model.config.pad_id)
        self._make_room(tokens.shape[1])
        self._cache, fresh = self._read(
            self._params, cache=self._cache, tokens=tokens[:, None], valid=valid[:, None]
        )
        self._slots += tokens.shape[1]
        if self.ends is not None:
            said = jnp.asarray(valid.any(axis=1))[:, None]
            fresh = jax.tree.map(lambda new, old: jnp.where(said, new, old), fresh, self.ends)
        self.ends = fresh
        self._append(rows)
        return fresh

    def write(
        self,
        key: jax.Array,
        limits: Limits,
        sampling: Sampling,
        rows: Sequence[bool] | None = None,
    ) -> list[list[int]]:
        """Continues the texts; what is written becomes part of them.

        Args:
          key: of all draws.
          limits: where a turn ends.
          sampling: how tokens are drawn.
          rows: which texts continue; None: all.

        Returns:
          The new tokens of each text.

        Raises:
          UserError: nothing was read yet, or a text may become longer than the model has positions.
        """
        if self.ends is None:
            raise UserError("nothing was read yet that could be continued")
        quiet = np.zeros(len(self.texts), bool) if rows is None else ~np.asarray(rows, bool)
        self._require([[] if still else [0] * limits.most for still in quiet])
        self._make_room(limits.most)
        written, states = self._write(
            self._params, cache=self._cache, ends=self.ends, key=key, ended=quiet[:, None],
            limits=limits, sampling=sampling,
        )  # fmt: skip
        self._cache, self._slots = written.carry[0], int(written.carry[0].slot)
        self.ends = Ends(states, written.logits[:, 0])
        tokens, valid = np.asarray(written.tokens[:, 0]), np.asarray(written.valid[:, 0])
        found = [row[good].tolist() for row, good in zip(tokens, valid, strict=True)]
        self._append(found)
        return found

    def _append(self, rows: Sequence[Sequence[int]]) -> None:
        for text, row in zip(self.texts, rows, strict=True):
            text.extend(row)

    def _require(self, rows: Sequence[Sequence[int]]) -> None:
        most = self._model.config.max_length
        for number, (text, row) in enumerate(zip(self.texts, rows, strict=True)):
            length = len(text) + len(row)
            if most is not None and length > most:
                raise UserError(
                    f"text {number} of the session: {length} tokens do not fit a model of {most} positions"
                )

    def _make_room(self, more: int) -> None:
        """Sees to `more` free slots: padding between turns goes first, then the cache grows."""
        capacity = self._cache.valid.shape[2]
        if self._slots + more <= capacity:
            return
        used = max(map(len, self.texts))
        while used + more > capacity:
            capacity *= 2
        self._cache, self._slots = self._squeeze(self._cache, capacity=capacity), used

    def _run(self, params: Any, cache: Cache, tokens: jax.Array, valid: jax.Array) -> tuple[Cache, Ends]:
        states, cache = self._model.extend(params, None, tokens, valid, cache)  # type: ignore[assignment]
        last = last_state(States(*(x[:, 0] for x in states)), valid[:, 0])
        branch = States(*(x[:, None] for x in last))
        logits = generation.next_logits(self._model, params, branch, self._adjust)
        return cache, Ends(last, logits[:, 0])

    def _continue(
        self,
        params: Any,
        cache: Cache,
        ends: Ends,
        key: jax.Array,
        ended: jax.Array,
        limits: Limits,
        sampling: Sampling,
    ) -> tuple[generation.Written, States]:
        def step(
            carry: tuple[Cache, States], tokens: jax.Array, valid: jax.Array
        ) -> tuple[jax.Array, tuple[Cache, States]]:
            cache, last = carry
            states, cache = self._model.extend(params, None, tokens[..., None], valid[..., None], cache)  # type: ignore[assignment]
            new = States(*(x[:, :, 0] for x in states))
            # A text that has ended stays where it ended.
            last = jax.tree.map(lambda a, b: jnp.where(valid[..., None], a, b), new, last)
            return generation.next_logits(self._model, params, last, self._adjust), (cache, last)

        branch = States(*(x[:, None] for x in ends.states))
        written = generation.write(
            step,
            (cache, branch),
            ends.logits[:, None],
            key,
            limits,
            sampling,
            self._model.config.pad_id,
            ended,
        )
        return written, States(*(x[:, 0] for x in written.carry[1]))


def squeezed(cache: Cache, capacity: int) -> Cache:
    """The cache without the padding between its tokens, with `capacity` slots."""
    order = jnp.argsort(~cache.valid, axis=2, stable=True)

    def move(leaf: jax.Array, axis: int) -> jax.Array:
        shape = [*order.shape[:2], *[1] * (leaf.ndim - 2)]
        shape[axis] = order.shape[2]
        moved = jnp.take_along_axis(leaf, order.reshape(shape), axis=axis)
        more = [(0, 0)] * leaf.ndim
        more[axis] = (0, capacity - order.shape[2])
        return jnp.pad(moved, more)

    keys = tuple(KeyValues(move(layer.keys, 3), move(layer.values, 3)) for layer in cache.keys)
    return Cache(keys, move(cache.valid, 2), jnp.max(cache.written), cache.written)
