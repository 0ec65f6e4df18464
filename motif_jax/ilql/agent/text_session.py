"""Dialogues of many episodes at once; their keys and values are kept in every trunk while the texts
grow.

One program writes an action in all trunks. The candidates of a row share its text, and the chosen
one becomes part of the row without being run again.
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
        # Kept for equal decoders, so that a later session compiles nothing.
        self._programs = Programs(decoder, decoding, marks)
        self._params = params
        self._max_tokens = decoding.max_tokens
        network = decoder.network
        self._max_length = network.model.config.max_length
        self._reads_means = network.design.q == "mean"
        self.texts: list[list[int]] = [[] for _ in range(batch)]
        self._state = self._programs.begin(params, batch=batch, capacity=capacity)
        self._prefix = 1 if network.design.prefix else 0  # positions before all texts
        self._slots = self._prefix  # in use, with padding between tokens
        self._capacity = capacity

    def read(self, rows: Sequence[Sequence[int]]) -> None:
        """Sets the texts to these tokens: keeps the common prefix and reads the rest.

        A text that is too long for the model, with room for an action, loses its beginning.
        """
        texts = [list(row) for row in rows]
        if self._max_length is not None:
            room = self._max_length - self._max_tokens - self._prefix
            # The cut moves all positions, so that such a text is mostly read anew.
            texts = [text[-room:] for text in texts]
        common = [
            _common_tokens(old, new, self._reads_means)
            for old, new in zip(self.texts, texts, strict=True)
        ]
        unread = [text[count:] for count, text in zip(common, texts, strict=True)]
        longest = max(map(len, unread), default=0)
        if longest:
            tokens, valid = padded(unread, _rounded(longest))
            self._make_room(tokens.shape[1])
            shortens = any(count < len(old) for count, old in zip(common, self.texts, strict=True))
            keep = np.asarray(common, np.int32) + self._prefix
            self._state = self._programs.read(
                self._params, self._state, tokens, valid, keep, shortens
            )
            self._slots += tokens.shape[1]
        self.texts = texts

    def write(self, keys: jax.Array, rows: np.ndarray) -> Actions:
        """Appends an action to each text of `rows` (bool [B]); `keys` [B] are for the draws."""
        self._make_room(self._max_tokens)
        self._state, written = self._programs.write(
            self._params, self._state, keys, jnp.asarray(rows)
        )
        # An action takes all its slots in every row, however few tokens the row wrote.
        self._slots += self._max_tokens
        actions = Actions(*jax.tree.map(np.asarray, written))
        for text, tokens, valid in zip(self.texts, actions.tokens, actions.valid, strict=True):
            text.extend(tokens[valid].tolist())
        return actions

    def pick(self, indices: Sequence[int]) -> None:
        """Leaves the texts `indices`, in this order."""
        self._state = self._programs.pick(self._state, jnp.asarray(indices))
        self.texts = [self.texts[index] for index in indices]

    def _make_room(self, count: int) -> None:
        """Makes sure that `count` further slots are free: drops padding, and doubles the capacity
        where that does not do.
        """
        if self._slots + count <= self._capacity:
            return
        used = self._prefix + max(map(len, self.texts), default=0)
        while used + count > self._capacity:
            # Doubled, since the programs are compiled again for each capacity.
            self._capacity *= 2
        self._state = self._programs.squeeze(self._state, capacity=self._capacity)
        self._slots = used


def _common_tokens(old: Sequence[int], new: Sequence[int], reads_means: bool) -> int:
    """The number of tokens at the front that stay; a changed text reads at least one again.

    With `reads_means` it reads all again, since the sum of its states cannot be shortened.
    """
    common = 0
    while common < min(len(old), len(new)) and old[common] == new[common]:
        common += 1
    if common == len(old):
        return common
    # The state that an action begins from is kept for the old text's last token alone, so that the
    # new one's is run again.
    return 0 if reads_means else min(common, len(new) - 1)


def _rounded(length: int) -> int:
    """1, 2, 4, 8, 12, 16, 24, ... tokens that are read at a time, for few programs."""
    size = 1 << (length - 1).bit_length()
    smaller = size * 3 // 4
    return smaller if size >= 16 and length <= smaller else size
