"""Ids of the tokens that begin, end and pad texts, in a model's config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.core.errors import UserError


def read(
    values: Mapping[str, Any], end: int, pad: int | None = None, start: int | None = None
) -> dict[str, Any]:
    """The fields `pad_id`, `start_id` and `end_ids` of a `ModelConfig`.

    Args:
      values: entries of config.json. `eos_token_id` is a token, or a list of them.
      end, pad, start: what an entry that is missing means; None: the end token.
    """
    listed = values.get("eos_token_id", end)
    ends = tuple(listed) if isinstance(listed, list) else (listed,)
    return {
        "pad_id": values.get("pad_token_id", ends[0] if pad is None else pad),
        "start_id": values.get("bos_token_id", ends[0] if start is None else start),
        "end_ids": ends,
    }


def pad_within(pad_id: int, vocab_size: int) -> int:
    """The padding token, or 0 where it is not in the table.

    A row outside the table is NaN, which no mask removes. Padding is masked, so that any row will
    do.
    """
    return pad_id if 0 <= pad_id < vocab_size else 0


def require(
    start_id: int, end_ids: Sequence[int], vocab_size: int, start_key: str, source: str
) -> None:
    """Raises UserError where the token that begins texts (of the entry `start_key`), or one that
    ends them, is not in the table.
    """
    for token in (start_id, *end_ids):
        if not 0 <= token < vocab_size:
            raise UserError(
                f"{source}: a token that begins or ends texts is {token}, which a model with {vocab_size} tokens does not have: "
                f"{start_key} and eos_token_id must be below vocab_size"
            )
