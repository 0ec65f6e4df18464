"""Dialogues of many episodes at once; their keys and values are kept in every trunk while the texts grow.

One program writes an action in all trunks. The candidates of a row share its text, and the chosen one becomes part of the row
without being run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.ilql.agent.agent_decoder import AgentDecoder
from motif_jax.ilql.agent.decoding import Decoding
from motif_jax.ilql.agent.text_programs import Actions, Programs
from motif_jax.ilql.dialogues.items import Delimiters
from motif_jax.lm.tokens import padded

# Slots that a session has at first.
CAPACITY = 96


class TextSession:
    """B texts of one decoder.

    Args:
      params: of the decoder.
      batch: B.
      capacity: slots at first; they grow when texts do.

    Attributes:
      texts: the tokens of each so far.
    """

    def __init__(
        self,
        decoder: AgentDecoder,
        params: Any,
        batch: int,
        decoding: Decoding,
        marks: Delimiters,
        capacity: int = CAPACITY,
    ) -> None:
        self._programs, self._params = Programs(decoder, decoding, marks), params
        network, self._most = decoder.network, decoding.max_tokens
        self._longest, self._pooled = network.model.config.max_length, network.design.q == "mean"
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        self._now = self._programs.begin(params, batch=batch, capacity=capacity)
        self._slots = self._ahead = int(network.design.prefix)  # positions before all texts
        self._capacity = capacity

    def read(self, rows: Sequence[Sequence[int]]) -> None:
        """Sets the texts to these tokens: keeps the common prefix and reads the rest.

        A text that is too long for the model, with room for an action, loses its beginning.
        """
        room = None if self._longest is None else self._longest - self._most - self._ahead
        wanted = [list(row if room is None else row[-room:]) for row in rows]
        keep = [_common(old, new, self._pooled) for old, new in zip(self.texts, wanted, strict=True)]
        fresh = [new[kept:] for kept, new in zip(keep, wanted, strict=True)]
        longest = max(map(len, fresh), default=0)
        taken_back = any(kept < len(old) for kept, old in zip(keep, self.texts, strict=True))
        if longest:
            tokens, valid = padded(fresh, _rounded(longest))
            self._make_room(tokens.shape[1])
            keeps = np.asarray(keep, np.int32) + self._ahead
            self._now = self._programs.read(self._params, self._now, tokens, valid, keeps, taken_back)
            self._slots += tokens.shape[1]
        self.texts = wanted

    def write(self, keys: jax.Array, rows: np.ndarray) -> Actions:
        """Appends an action to each text of `rows` (bool [B]); `keys` [B] are for the draws."""
        self._make_room(self._most)
        self._now, written = self._programs.write(self._params, self._now, keys, jnp.asarray(rows))
        self._slots += self._most
        found = Actions(*jax.tree.map(np.asarray, written))
        for text, tokens, valid in zip(self.texts, found.tokens, found.valid, strict=True):
            text.extend(tokens[valid].tolist())
        return found

    def pick(self, places: Sequence[int]) -> None:
        """Leaves these texts alone, in this order."""
        self._now = self._programs.pick(self._now, jnp.asarray(places))
        self.texts = [self.texts[place] for place in places]

    def _make_room(self, more: int) -> None:
        if self._slots + more <= self._capacity:
            return
        used = self._ahead + max(map(len, self.texts), default=0)
        while used + more > self._capacity:
            self._capacity *= 2
        self._now = self._programs.squeeze(self._now, capacity=self._capacity)
        self._slots = used


def _common(old: Sequence[int], new: Sequence[int], whole: bool) -> int:
    """The number of tokens at the front that stay; a changed text reads at least one again."""
    pairs = enumerate(zip(old, new, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), min(len(old), len(new)))
    if same == len(old):
        return same
    return 0 if whole else min(same, len(new) - 1)


def _rounded(length: int) -> int:
    """1, 2, 4, 8, 12, 16, 24, ... tokens that are read at a time, for few programs."""
    size = 1 << (length - 1).bit_length()
    return size * 3 // 4 if size >= 16 and length <= size * 3 // 4 else size
