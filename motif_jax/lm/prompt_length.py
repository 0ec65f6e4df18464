"""Checks that texts fit a model before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.tokens import Tokenizer, candidate_rows


def prompt_room(settings: ModelConfig, more: int) -> int | None:
    """Most tokens of a prompt that `more` tokens follow; None: no limit."""
    if settings.max_length is None:
        return None
    return settings.max_length - more


def require_prompts(
    texts: Sequence[str], rows: Sequence[Sequence[int]], settings: ModelConfig, more: int
) -> None:
    """Raises UserError for a text without tokens, or without room for `more` tokens behind it; `rows` are the texts' tokens."""
    room = prompt_room(settings, more)
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise UserError(f"text {text!r} has no tokens")
        if room is not None and len(row) > room:
            raise UserError(
                f"a prompt of {len(row)} tokens ({text[:40]!r}...) and {more} more do not fit a model of {settings.max_length} positions"
            )


def each_prompts(prompts: Sequence[str], candidates: Any) -> list[tuple[str, ...]]:
    """The candidates of each prompt; `candidates` are texts for all prompts, or a list for each."""
    if all(isinstance(candidate, str) for candidate in candidates):
        return [tuple(candidates)] * len(prompts)
    if len(candidates) != len(prompts):
        raise UserError(
            f"{len(candidates)} lists of candidates for {len(prompts)} prompts: one for each, or one for all"
        )
    return [tuple(names) for names in candidates]


def require(
    tokenizer: Tokenizer,
    settings: ModelConfig,
    prompts: Sequence[str],
    candidates: Sequence[Sequence[str]] | None = None,
    most: int = 0,
) -> None:
    """Raises UserError where a prompt with its candidates, or with `most` new tokens, does not fit the model."""
    if candidates is not None:
        # Many prompts share their candidates, which are tokenised once.
        distinct = dict.fromkeys(tuple(texts) for texts in candidates)
        most = max(len(row) for texts in distinct for row in candidate_rows(tokenizer, texts))
    require_prompts(prompts, tokenizer.encode(prompts), settings, most)
