"""Converts texts to tokens and back by a checkpoint's tokenizer.json, and rows of tokens to padded
arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from motif_jax.core import joint_tokens, tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.joint_tokens import JointRows

FILE = "tokenizer.json"
# Smallest padded length of `bucket`.
_SMALLEST = 16
# Most tokens of a batch, padding included: attention of 32 long prompts at a time would take
# gigabytes.
TOKENS_OF_BATCH = 4096


class TokenRows(NamedTuple):
    """Padded rows of tokens int32 [B, T], and bool [B, T], False for padding."""

    tokens: np.ndarray
    valid: np.ndarray


class Tokenizer:
    """The tokenizer of a folder."""

    def __init__(self, backend: Backend, source: str = "the tokenizer") -> None:
        self._backend, self._source = backend, source
        # A tokenizer.json may ask for both, and rows are padded and checked here.
        self._backend.no_padding()
        self._backend.no_truncation()
        # Special tokens for which the model beside it has no row, by their numbers.
        self._without_row: dict[int, str] = {}

    @classmethod
    def read(cls, folder: str | Path, vocab_size: int | None = None) -> Tokenizer:
        """Reads tokenizer.json; UserError where it cannot be read, or has more tokens than the
        model's `vocab_size`.

        Special tokens may lie beyond, as that of pictures does in Gemma 3: a text that has one is
        refused.
        """
        path = Path(folder) / FILE
        tokenizer = cls(tokenizer_files.read(path), str(path))
        if vocab_size is None or tokenizer.size <= vocab_size:
            return tokenizer
        added = tokenizer._backend.get_added_tokens_decoder()
        tokenizer._without_row = {
            number: token.content
            for number, token in added.items()
            if token.special and number >= vocab_size
        }
        if tokenizer.size - len(tokenizer._without_row) > vocab_size:
            raise UserError(
                f"{path} has {tokenizer.size} tokens, the model beside it {vocab_size}: it belongs to another model"
            )
        return tokenizer

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(
        self, texts: Sequence[str], special: bool = True, closed: bool = True
    ) -> list[list[int]]:
        """Tokens of each text.

        A text that spells the tokenizer's first special token itself, as chat templates do, has it
        once.

        Args:
          special: with the special tokens that the tokenizer adds.
          closed: with those after the text, too; False for a text that a decoder continues.
        """
        opening = 0 if closed else len(self.beginning())
        return [
            joint_tokens.tokens_of(encoding, closed, opening)
            for encoding in self._encodings(texts, special)
        ]

    def beginning(self) -> list[int]:
        """The special tokens that the tokenizer adds in front of a text; [] for none."""
        (encoding,) = self._encodings(["a"], True)
        # The 0 ends the search where every token is special.
        is_added = [*encoding.special_tokens_mask, 0]
        return encoding.ids[: is_added.index(0)]

    def _encodings(self, texts: Sequence[str], special: bool) -> list[Encoding]:
        """Raises UserError where a text has a token without a row in the model's table."""
        # In one call for all texts, which the library spreads over the cores.
        encodings: list[Encoding] = self._backend.encode_batch(
            list(texts), add_special_tokens=special
        )
        for encoding in encodings if self._without_row else ():
            for token in self._without_row.keys() & set(encoding.ids):
                raise UserError(
                    f"{self._source}: a text has {self._without_row[token]}, for which the model beside it has no row: leave it out"
                )
        return encodings

    def encode_joint(
        self, prompts: Sequence[str], candidates: Sequence[Sequence[str]], special: bool = True
    ) -> list[JointRows]:
        """Tokens of each prompt and its candidates, each candidate tokenised together with its
        prompt (`joint_tokens.split`).

        `special`: with the special tokens that the tokenizer adds in front of a text; those after
        it are left out.

        Raises:
          UserError: a prompt has no candidates, a candidate no tokens, two have the same, or one
              shares no token with its prompt.
        """
        texts = []
        for prompt, names in zip(prompts, candidates, strict=True):
            # Prompt, then prompt with each candidate: `rows` gives them back in this order.
            texts += [prompt, *(prompt + name for name in names)]
        encodings = self._encodings(texts, special)
        opening = len(self.beginning()) if special else 0
        rows = iter(
            [
                joint_tokens.tokens_of(encoding, closed=False, opening=opening)
                for encoding in encodings
            ]
        )
        joint = []
        for prompt, names in zip(prompts, candidates, strict=True):
            prompt_tokens = next(rows)
            texts_tokens = [next(rows) for _ in names]
            joint.append(joint_tokens.split(prompt, names, prompt_tokens, texts_tokens))
        return joint

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._backend.decode([int(token) for token in tokens], skip_special_tokens=True)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token as it stands within a text: one that begins a word has the blank before it."""
        # Decoders drop the blank of a text's first token, so that another token stands before each.
        anchor = self._backend.encode("a", add_special_tokens=False).ids
        # Letters of the anchor, which are cut off the decoded pieces.
        before = len(self._backend.decode(anchor, skip_special_tokens=False))
        rows = [[*anchor, int(token)] for token in tokens]
        texts = self._backend.decode_batch(rows, skip_special_tokens=False)
        return [text[before:] for text in texts]

    @functools.cached_property
    def all_texts(self) -> list[str]:
        """Each token decoded as a text of its own, by its number."""
        return self.decoded_alone(range(self.size))

    def decoded_alone(self, tokens: Sequence[int]) -> list[str]:
        """Each token decoded as a text of its own, special ones too."""
        return self._backend.decode_batch([[token] for token in tokens], skip_special_tokens=False)

    def find(self, text: str) -> int | None:
        """The number of the token `text`, special or not; None if there is no such token."""
        return self._backend.token_to_id(text)

    def token(self, text: str) -> int:
        """The number of the token `text`, special or not; UserError where there is no such
        token.
        """
        number = self.find(text)
        if number is None:
            raise UserError(f"{self._source} has no token {text!r}")
        return number


def candidate_rows(
    tokenizer: Tokenizer, texts: Sequence[str], special: bool = False
) -> list[list[int]]:
    """Tokens of candidates without their prompts; `special`: with the special tokens that the
    tokenizer adds.

    Raises:
      UserError: a candidate has no tokens, or two have the same.
    """
    rows = tokenizer.encode(texts, special)
    text_of: dict[tuple[int, ...], str] = {}
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise UserError(f"candidate {text!r} has no tokens")
        if tuple(row) in text_of:
            raise UserError(f"candidates {text_of[tuple(row)]!r} and {text!r} have the same tokens")
        text_of[tuple(row)] = text
    return rows


def bucket(length: int, maximum: int | None = None) -> int:
    """The padded length for rows of `length` tokens: 16, 24, 32, 48, 64, 96, ..., at most
    `maximum`. Few lengths mean few programs.
    """
    size = _SMALLEST
    while size < length:
        # Powers of two, and one and a half times each.
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size if maximum is None else max(length, min(size, maximum))


def batches_of_like_length(
    lengths: Sequence[int], maximum: int, tokens_of_batch: int = TOKENS_OF_BATCH
) -> list[list[int]]:
    """Positions of rows that run together: the longest first, at most `maximum` rows and
    `tokens_of_batch` tokens with their padding.

    Attention of a batch takes rows times the square of the longest: one row of 3,000 tokens beside
    nine short ones took 6 GB.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    parts: list[list[int]] = []
    while order:
        fitting = tokens_of_batch // bucket(lengths[order[0]])
        # A power of two, as programs have it.
        count = maximum if fitting >= maximum else 1 << max(0, fitting.bit_length() - 1)
        parts.append(order[:count])
        order = order[count:]
    return parts


def padded(
    rows: Sequence[Sequence[int] | np.ndarray], length: int | None = None, pad: int = 0
) -> TokenRows:
    """Pads rows on the right to `length`, by default to the longest."""
    width = max((len(row) for row in rows), default=0) if length is None else length
    tokens = np.full((len(rows), width), pad, np.int32)
    valid = np.zeros((len(rows), width), bool)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
        valid[index, : len(row)] = True
    return TokenRows(tokens, valid)
