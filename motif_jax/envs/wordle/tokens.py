"""Wordle's 35 tokens: letters, colours, delimiters, as published."""

from __future__ import annotations

import re

from motif_jax.datasets.dialogues.items import DELIMITER_TEXTS, Delimiters
from motif_jax.envs.wordle.words import LETTERS

TOKENS = (*LETTERS, "<g>", "<b>", "<y>", "<|pad|>", "</a>", "</s>", "<s>", "<a>", "</eod>")
NUMBERS = {token: number for number, token in enumerate(TOKENS)}
_PIECE = re.compile("|".join(re.escape(token) for token in TOKENS))


class WordleTokenizer:
    """A letter, a colour or a delimiter is a token."""

    size = len(TOKENS)
    delimiters = Delimiters(*(NUMBERS[text] for text in DELIMITER_TEXTS))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text.

        Raises:
          ValueError: there is something in it that is none of them.
        """
        pieces = _PIECE.findall(text)
        if sum(map(len, pieces)) != len(text):
            raise ValueError(f"{text!r} has more than letters a to z, colours and delimiters")
        return [NUMBERS[piece] for piece in pieces]

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return "".join(TOKENS[token] for token in tokens)
