"""Reads a tokenizer.json, and keeps its special tokens out of texts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from tokenizers import Tokenizer

from motif_jax.core.errors import UserError


def read(path: str | os.PathLike[str]) -> Tokenizer:
    """Opens a tokenizer.json, without the padding and truncation that it may ask for. Raises
    UserError: it cannot be read.
    """
    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # a plain Exception, which names no file
        raise UserError(f"{path} cannot be read: {error}") from None
    backend.no_padding()
    backend.no_truncation()
    return backend


# Characters that Unicode keeps out of texts: no piece with them is in a text.
_PREFIX = "\ufdd0"
_SUFFIX = "\ufdd1"


def without_pieces(backend: Tokenizer, texts: Collection[str]) -> Tokenizer:
    """A tokenizer with the same numbers of tokens that encodes texts and never gives the tokens
    `texts` or a special token.

    What spells one of them is encoded by its characters. Setting `encode_special_tokens` is not
    enough: added tokens that are not special are matched all the same, and Unigram, WordLevel and
    WordPiece find a special token that is in their vocabulary.
    """
    values = json.loads(backend.to_str())
    model = values["model"]
    unknown = model.get("unk_token")
    special = {token["content"] for token in values["added_tokens"] if token["special"]}
    # The unknown token keeps its name: it stands for whatever no other piece spells.
    hidden = {*texts, *special} - {unknown}
    if model.get("unk_id") is not None:
        hidden.discard(model["vocab"][model["unk_id"]][0])
    for token in values["added_tokens"]:
        if token["content"] in hidden:
            # Under another name the token keeps its number.
            token |= {"content": _renamed(token["content"]), "special": True, "normalized": False}
    if isinstance(model["vocab"], dict):
        model["vocab"] = {
            _renamed(piece) if piece in hidden else piece: number
            for piece, number in model["vocab"].items()
        }
    else:
        model["vocab"] = [
            [_renamed(piece) if piece in hidden else piece, score]
            for piece, score in model["vocab"]
        ]
    if "merges" in model:
        # A merge with a piece that the table lacks could not be loaded.
        model["merges"] = [
            merge for merge in model["merges"] if not hidden & _pieces_of(merge, model)
        ]
    values["post_processor"] = None  # it adds special tokens, under their old names
    changed = Tokenizer.from_str(json.dumps(values))
    changed.encode_special_tokens = True
    return changed


def _renamed(piece: str) -> str:
    return f"{_PREFIX}{piece}{_SUFFIX}"


def _pieces_of(merge: str | list[str], model: Mapping[str, Any]) -> set[str]:
    """The two pieces of a merge of byte pairs, and the piece that they become."""
    # Older files write a merge as "a b", newer ones as ["a", "b"].
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    prefix = model.get("continuing_subword_prefix") or ""
    return {first, second, first + second.removeprefix(prefix)}
