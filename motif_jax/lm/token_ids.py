"""Ids of the tokens that begin, end and pad texts, in a model's config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motif_jax.core.errors import UserError

# null of it says that no token ends a text.
END = "eos_token_id"


def read(
    values: Mapping[str, Any], end: int, pad: int | None = None, start: int | None = None
) -> dict[str, Any]:
    """The fields `pad_id`, `start_id` and `end_ids` of a `ModelConfig`.

    Args:
      values: entries of config.json. `eos_token_id` is a token, a list of them, or null: no token
        ends a text.
      end, pad, start: what an entry that is missing means; None: the end token.
    """
    listed = values.get(END, end)
    ends: tuple[int, ...] = ()
    if isinstance(listed, list):
        ends = tuple(listed)
    elif listed is not None:
        ends = (listed,)
    # Padding and beginning are the end of text where a config does not name them, as of a GPT-2.
    first_end = ends[0] if ends else end
    return {
        "pad_id": values.get("pad_token_id", first_end if pad is None else pad),
        "start_id": values.get("bos_token_id", first_end if start is None else start),
        "end_ids": ends,
    }


def to_values(end_ids: Sequence[int]) -> dict[str, Any]:
    """The entry of the tokens that end a text, as `read` reads it."""
    if not end_ids:
        return {END: None}
    return {END: end_ids[0] if len(end_ids) == 1 else list(end_ids)}


def learned_end(end_ids: Sequence[int]) -> int:
    """The token by which a training ends its texts; UserError where the model has none."""
    if not end_ids:
        raise UserError(
            "the model's config.json has eos_token_id null, and a training ends its texts with that token: name it there"
        )
    return end_ids[0]


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
