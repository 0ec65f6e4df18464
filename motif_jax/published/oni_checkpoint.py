"""What a published ONI checkpoint holds besides the agent: the table of labels, and the labels a classifier learned from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from motif_jax.published.pickles import Unread
from motif_jax.published.torch_import import TorchCheckpoint
from motif_jax.rewards.load import encode
from motif_jax.support.errors import UserError

TABLE, DATASET, MODEL = "llm_message_rewards", "reward_model_dataset", "reward_model"
_DEEPEST = 10


def labels(checkpoint: TorchCheckpoint) -> dict[str, int] | None:
    """The labels that the checkpoint holds, text -> 0 or 1; None where it holds none.

    They are the table of labels, and where there is none the examples of the classifier: of an object of the published
    package, whose parts are read as data and which is never built.

    Raises:
      UserError: a text is no message, or a label neither 0 nor 1.
    """
    for name in (TABLE, DATASET):
        found = dict(_pairs(checkpoint.content.get(name)))
        if found:
            return {
                _text(checkpoint, name, text): _label(checkpoint, name, text, found[text]) for text in found
            }
    return None


def _pairs(tree: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields (text, label) from dictionaries of them and lists of pairs, wherever in `tree` they are."""
    if depth > _DEEPEST:
        return
    if isinstance(tree, Unread):
        yield from _pairs(tree.arguments, depth + 1)
    elif isinstance(tree, dict):
        if tree and all(isinstance(key, str) and _is_number(value) for key, value in tree.items()):
            # An object's own attributes are such a dictionary too, where all of them are numbers.
            if depth == 0 or not all(key.isidentifier() for key in tree):
                yield from tree.items()
        else:
            for value in tree.values():
                yield from _pairs(value, depth + 1)
    elif isinstance(tree, list | tuple):
        if len(tree) == 2 and isinstance(tree[0], str) and _is_number(tree[1]):
            yield tree[0], tree[1]
        else:
            for value in tree:
                yield from _pairs(value, depth + 1)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.size == 1 and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float)


def _text(checkpoint: TorchCheckpoint, name: str, text: str) -> str:
    try:
        encode(text)
    except UserError as error:
        raise UserError(f"{checkpoint.path}: {name}: {error}") from None
    return text


def _label(checkpoint: TorchCheckpoint, name: str, text: str, value: Any) -> int:
    number = float(np.asarray(value).reshape(()))
    if number not in (0.0, 1.0):
        raise UserError(f"{checkpoint.path}: {name}: the label of {text!r} is {number:g}, neither 0 nor 1")
    return int(number)
