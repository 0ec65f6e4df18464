"""Texts that end a continuation (`stops` of `TextModel.generate`), as tokens and as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from motif_jax.core.errors import UserError
from motif_jax.lm.tokens import Tokenizer


class StopTokens(NamedTuple):
    """The tokens that end a text, since a stop is in them.

    A tokenizer of bytes has several for a line break: "\\n", and others that hold it ("\\n\\n").
    """

    whole: tuple[int, ...]  # a stop by themselves
    holding: tuple[int, ...]  # all tokens with a stop in their text, those of `whole` among them


def tokens_of(tokenizer: Tokenizer, stops: Sequence[str]) -> StopTokens:
    """The tokens that end a text at one of the stops; a stop may have none."""
    if not stops:
        return StopTokens((), ())
    pieces = list(enumerate(tokenizer.all_pieces))
    whole = tuple(token for token, piece in pieces if piece in stops)
    holding = tuple(token for token, piece in pieces if any(stop in piece for stop in stops))
    return StopTokens(whole, holding)


def require_tokens(tokenizer: Tokenizer, stops: Sequence[str], where: str) -> None:
    """Raises UserError, which begins with `where`, for a stop that is no token: a search looks at
    tokens alone, and could not end a beam there.
    """
    pieces = set(tokenizer.all_pieces) if stops else set()
    for stop in stops:
        # A word may be a token with the blank before it alone.
        if stop not in pieces and f" {stop}" not in pieces:
            raise UserError(
                f"{where}: {stop!r} is no token of the model, and a beam ends at a token; give stops that are tokens, or draw texts"
            )


def before(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop in it."""
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts, default=len(text))]
