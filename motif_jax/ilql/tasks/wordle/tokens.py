"""Wordle's 35 tokens: letters, colours, delimiters, as published."""

from __future__ import annotations

import re
from pathlib import Path

from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from motif_jax.core.files import atomic_write_text
from motif_jax.ilql.dialogues.items import DELIMITER_TEXTS, Delimiters
from motif_jax.ilql.tasks.wordle.words import LETTERS

TOKENS = (*LETTERS, "<g>", "<b>", "<y>", "<|pad|>", "</a>", "</s>", "<s>", "<a>", "</eod>")
NUMBERS = {token: number for number, token in enumerate(TOKENS)}
_PIECE = re.compile("|".join(re.escape(token) for token in TOKENS))


class WordleTokenizer:
    """Encodes each letter, colour or delimiter as a token."""

    size = len(TOKENS)
    delimiters = Delimiters(*(NUMBERS[text] for text in DELIMITER_TEXTS))

    def encode(self, text: str) -> list[int]:
        """Raises ValueError: a character is not a token."""
        pieces = _PIECE.findall(text)
        if sum(map(len, pieces)) != len(text):
            raise ValueError(f"{text!r} has more than letters a to z, colours and delimiters")
        return [NUMBERS[piece] for piece in pieces]

    def decode(self, tokens: list[int]) -> str:
        return "".join(TOKENS[token] for token in tokens)

    def save(self, folder: Path) -> None:
        backend = Backend(models.WordLevel(NUMBERS))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE.pattern), "isolated")
        # Without blanks between the letters.
        backend.decoder = decoders.Fuse()
        backend.add_special_tokens(list(DELIMITER_TEXTS))
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(folder / "tokenizer.json", backend.to_str())
