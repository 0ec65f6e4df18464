"""Reads the labels of messages and the classifier of a published ONI checkpoint."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.motif.reward.reward_function import encode
from motif_jax.nets import layout
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import label_log
from motif_jax.oni.label_queue import Label
from motif_jax.published import name_matching, torch_file
from motif_jax.published.motif_checkpoint import TorchCheckpoint
from motif_jax.published.pickles import Stub

TABLE = "llm_message_rewards"
DATASET = "reward_model_dataset"
MODEL = "reward_model"
_CONTAINERS = (dict, list, tuple, set)
_DEEPEST = 10
# Layers in the order of the published file.
_ORDER = (
    *("embedding", "conv1", "conv2", "conv3", "conv4", "conv5", "conv6"),
    *("message_fc", "classifier_fc1", "classifier_fc2", "classifier_head"),
)


def labels(checkpoint: TorchCheckpoint) -> dict[str, int] | None:
    """The checkpoint's labels, text -> 0 or 1; None without labels.

    They come from the table of labels, or without one from the classifier's examples, an object of
    the published package, whose parts are read as data.

    Raises:
      UserError: a text is not a message, a label is neither 0 nor 1, or the table or the examples
          have a form in which no labels are known.
    """
    unknown = []
    for name in (TABLE, DATASET):
        part = checkpoint.content.get(name)
        values = dict(_pairs(part))
        if values:
            try:
                return {text: _label(text, value) for text, value in values.items()}
            except UserError as error:
                raise UserError(f"{checkpoint.path}: {name}: {error}") from None
        if not _is_empty(part):
            unknown.append(name)
    if unknown:
        raise UserError(
            f"{checkpoint.path}: {' and '.join(unknown)}: has no text with a label: give it as a dictionary text -> 0 or 1, or "
            "import the agent alone with --config.agent.reward.kind=none"
        )
    return None


def _is_empty(part: Any) -> bool:
    """Whether a part of a checkpoint is missing, an empty container, or an object without
    examples.
    """
    if isinstance(part, Stub):
        return _holds_nothing((part.arguments, part.state))
    return part is None or (isinstance(part, _CONTAINERS) and not part)


def _holds_nothing(attributes: Any) -> bool:
    """Whether all arrays and containers in an object's attributes are empty."""
    if isinstance(attributes, Stub):
        return _is_empty(attributes)
    if isinstance(attributes, np.ndarray):
        return not attributes.size
    if isinstance(attributes, dict):
        # Attributes are called by identifiers; other keys may be texts with labels of another form.
        are_names = all(isinstance(key, str) and key.isidentifier() for key in attributes)
        return are_names and all(map(_holds_nothing, attributes.values()))
    if isinstance(attributes, tuple):
        return all(map(_holds_nothing, attributes))
    return not (isinstance(attributes, list | set) and attributes)


def _pairs(tree: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yields (text, label) from all dictionaries text -> label and lists of pairs in `tree`."""
    if depth > _DEEPEST:
        return
    if isinstance(tree, Stub):
        yield from _pairs((tree.arguments, tree.state), depth + 1)
    elif isinstance(tree, dict):
        if tree and all(isinstance(key, str) and _is_number(value) for key, value in tree.items()):
            # Excludes an object's attributes, which look the same if all are numbers.
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


def _label(text: str, value: Any) -> int:
    encode(text)  # raises UserError for what is not a message
    number = float(np.asarray(value).reshape(()))
    if number not in (0.0, 1.0):
        raise UserError(f"the label of {text!r} is {number:g}, neither 0 nor 1")
    return int(number)


def classifier(checkpoint: TorchCheckpoint) -> Any | None:
    """The parameters of the checkpoint's classifier, None without one. Raises UserError: its
    tensors do not match.
    """
    tensors = list(torch_file.tensors(checkpoint.content.get(MODEL) or {}))
    if not tensors or DATASET not in checkpoint.content:
        return None
    abstract = jax.eval_shape(MessageClassifier().init, jax.random.key(0))
    # Only shapes are needed; bools take least memory.
    named = layout.to_torch(jax.tree.map(lambda leaf: np.empty(leaf.shape, np.bool_), abstract))
    shapes = {name: named[name].shape for name in sorted(named, key=_published_order)}
    try:
        match = name_matching.match(tensors, shapes)
    except ValueError as error:
        raise UserError(
            f"{checkpoint.path}: {MODEL} does not fit the classifier: {error}"
        ) from None
    return layout.from_torch(match.tensors(tensors), abstract)


def _published_order(name: str) -> tuple[int, bool]:
    layer, _, kind = name.partition("/")
    return _ORDER.index(layer), kind == "bias"


def reward_item(labels: dict[str, int], params: Any | None, workdir: Path) -> dict[str, Any]:
    """Writes the label log of a run; returns the checkpoint's item of its reward, which equals the
    labels without `params`.
    """
    path = workdir / label_log.FILE
    path.unlink(missing_ok=True)  # left by a killed import
    with contextlib.closing(label_log.LabelLog(path)) as log:
        log.add(Label((text,), label) for text, label in labels.items())
        log.sync()
        book: dict[str, Any] = {"length": log.length(), "labels": len(labels), "own": None}
    item: dict[str, Any] = {}
    if params is not None:
        # The file does not have the number of training steps; with 0 steps the reward would be 0.
        book["own"] = {"taken": 1}
        item["own"] = {"params": params}
    return {"book": np.frombuffer(json.dumps(book).encode(), np.uint8), **item}
