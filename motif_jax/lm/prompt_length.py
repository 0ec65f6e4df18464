"""Checks that texts fit a model before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.joint_tokens import JointRows
from motif_jax.lm import chat_prompts
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.tokens import Tokenizer, candidate_rows


def prompt_room(settings: ModelConfig, more: int) -> int | None:
    """Most tokens of a prompt that `more` tokens follow; None: no limit."""
    if settings.max_length is None:
        return None
    return settings.max_length - more


def require_prompts(
    texts: Sequence[str],
    rows: Sequence[Sequence[int]],
    settings: ModelConfig,
    more: int | Sequence[int],
) -> None:
    """Raises UserError for a text without tokens, or without room for `more` tokens after it (of
    each text, or of all).

    `rows` are the texts' tokens.
    """
    more_of_each = [more] * len(texts) if isinstance(more, int) else more
    for text, row, following in zip(texts, rows, more_of_each, strict=True):
        # A decoder has no state after it from which a first token could be predicted.
        if not row:
            raise UserError(f"text {text!r} has no tokens")
        room = prompt_room(settings, following)
        if room is not None and len(row) > room:
            raise UserError(
                f"a prompt of {len(row)} tokens ({text[:40]!r}...) and {following} more do not fit a model of {settings.max_length} positions"
            )


def each_prompts(prompts: Sequence[str], candidates: Any) -> list[tuple[str, ...]]:
    """The candidates of each prompt; `candidates` are texts for all prompts, or a list for each."""
    chat_prompts.require_list(candidates, "candidates")
    # Texts are for all prompts, lists are one for each.
    if all(isinstance(candidate, str) for candidate in candidates):
        return [tuple(candidates)] * len(prompts)
    if len(candidates) != len(prompts):
        raise UserError(
            f"{len(candidates)} lists of candidates for {len(prompts)} prompts: one for each, or one for all"
        )
    return [tuple(names) for names in candidates]


def longest_candidates(encoded: Sequence[JointRows]) -> list[int]:
    """The number of tokens of each prompt's longest candidate."""
    return [max(map(len, rows.candidates)) for rows in encoded]


def encode(
    tokenizer: Tokenizer,
    settings: ModelConfig,
    prompts: Sequence[str],
    candidates: Sequence[Sequence[str]],
    special: bool = True,
) -> list[JointRows]:
    """The tokens of each prompt and of its candidates: tokenised together for a decoder, apart for
    an encoder and its decoder.

    `special`: prompts have the special tokens that the tokenizer adds.

    Raises:
      UserError: see `Tokenizer.encode_joint`.
    """
    if not settings.encoder_layers:
        return tokenizer.encode_joint(prompts, candidates, special)
    # Many prompts share their candidates, which are tokenised once.
    distinct = dict.fromkeys(tuple(texts) for texts in candidates)
    rows_of = {texts: candidate_rows(tokenizer, texts) for texts in distinct}
    prompt_rows = tokenizer.encode(prompts, special)
    encoded = []
    for row, texts in zip(prompt_rows, candidates, strict=True):
        candidate_tokens = rows_of[tuple(texts)]
        encoded.append(JointRows(row, candidate_tokens, [0] * len(candidate_tokens)))
    return encoded
