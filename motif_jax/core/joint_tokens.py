"""Tokens of a prompt and of what may follow it, tokenised together as one text.

A model that reads texts from left to right has learned the tokens of whole texts. Of "Action 0:"
and " turn left" most tokenizers make ":" and " turn": a blank belongs to the word after it.
Tokenised apart, "Action 0: " ends with a blank of its own and "turn" begins without one, which no
text has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Encoding

from motif_jax.core.errors import UserError


class JointRows(NamedTuple):
    """The tokens of a prompt's candidates, each tokenised together with the prompt.

    Attributes:
      prompt: the tokens that the prompt alone has in common with prompt and candidate, for all
          candidates.
      candidates: the tokens of each candidate after `prompt`.
      starts: for each candidate the number of tokens at its beginning that are the prompt's, and
          not scored.
    """

    prompt: list[int]
    candidates: list[list[int]]
    starts: list[int]


def tokens_of(encoding: Encoding, closed: bool = True, opening: int = 0) -> list[int]:
    """The tokens of a text, with the special token that the tokenizer adds in front once, where the
    text spells it itself.

    Args:
      closed: with the special tokens that the tokenizer adds after the text; False where the text
          goes on.
      opening: number of special tokens that the tokenizer adds in front, which an empty text that
          goes on keeps.
    """
    tokens: list[int] = encoding.ids
    # 1 for the tokens that the tokenizer adds, 0 for the text's own, special ones among them.
    is_added = encoding.special_tokens_mask
    stop = len(tokens)
    while not closed and stop > opening and is_added[stop - 1]:
        stop -= 1
    # A chat template writes the beginning of a text itself, and the tokenizer adds it again.
    is_double = len(tokens) > 1 and tokens[0] == tokens[1] and is_added[0] == 1
    return tokens[1:stop] if is_double else tokens[:stop]


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of tokens with which both rows begin."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length


def split(
    prompt: str,
    candidates: Sequence[str],
    prompt_tokens: Sequence[int],
    texts_tokens: Sequence[Sequence[int]],
) -> JointRows:
    """Divides the tokens of prompt and candidate into the prompt's and the candidate's.

    A candidate's tokens are those after the longest common beginning of the prompt's tokens and
    those of both together. Where the tokenizer merges letters across the place where they meet, or
    divides the prompt's last word otherwise, the tokens that differ from the prompt's count as the
    candidate's.

    Args:
      prompt, candidates: the texts, for errors.
      prompt_tokens: of the prompt alone.
      texts_tokens: of the prompt with each candidate.

    Raises:
      UserError: a candidate has no tokens, two have the same, or one shares no token with the
          prompt.
    """
    common = [common_length(prompt_tokens, tokens) for tokens in texts_tokens]
    # One prompt for all candidates, so that a model runs it once; the rest of it goes before each
    # candidate's own tokens.
    shared = min(common)
    if prompt_tokens and shared == 0:
        name = candidates[common.index(0)]
        raise UserError(
            f"the tokens of {prompt!r} and of {prompt + name!r} have no common beginning, after which the candidate could be scored: "
            "begin the prompt with more text"
        )
    text_of: dict[tuple[int, ...], str] = {}
    for name, tokens, length in zip(candidates, texts_tokens, common, strict=True):
        if len(tokens) == length:
            raise UserError(f"candidate {name!r} has no tokens")
        if tuple(tokens) in text_of:
            raise UserError(
                f"candidates {text_of[tuple(tokens)]!r} and {name!r} have the same tokens"
            )
        text_of[tuple(tokens)] = name
    return JointRows(
        prompt=list(prompt_tokens[:shared]),
        candidates=[list(tokens[shared:]) for tokens in texts_tokens],
        starts=[length - shared for length in common],
    )
