"""Texts that end a continuation (`stops` of `TextModel.generate`), as tokens and as texts."""

from __future__ import annotations

from collections.abc import Sequence

from motif_jax.core.errors import UserError
from motif_jax.lm.tokens import Tokenizer

# What a decoder writes for a part of a letter.
_REPLACEMENT = "\ufffd"


def tokens_of(tokenizer: Tokenizer, stops: Sequence[str]) -> tuple[int, ...]:
    """The tokens that are one of the stops by themselves: the loop on the device ends at them. A
    stop may have none; it is looked for in the decoded text.

    They are known by their decoded text: a tokenizer of bytes names bytes by other letters, so that
    a line break is its token "\u010a", and its token "\u00e9" a part of other letters.
    """
    if not stops:
        return ()
    # A stop with U+FFFD would match every token that is a part of a letter.
    wanted = {stop for stop in stops if _REPLACEMENT not in stop}
    # Several tokens may decode to one text: all of them end it.
    return tuple(token for token, text in enumerate(tokenizer.all_texts) if text in wanted)


def require_tokens(tokenizer: Tokenizer, stops: Sequence[str], where: str) -> None:
    """Raises UserError, which begins with `where`, for a stop that is no token: a search looks at
    tokens alone, and its beams would be the same text once what follows the stop is cut off.
    """
    for stop in stops:
        if not tokens_of(tokenizer, [stop]):
            raise UserError(
                f"{where}: {stop!r} is no token of the model, and a beam ends at a token; give stops that are tokens, or draw texts"
            )


def before(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop in it."""
    starts = [text.find(stop) for stop in stops if stop in text]
    return text[: min(starts, default=len(text))]
