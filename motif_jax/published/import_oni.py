"""Imports ONI's PyTorch checkpoints: an agent, the labels of messages, and the classifier that
learned from them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.motif.reward.reward_function import encode
from motif_jax.nets import layout
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.oni import label_log
from motif_jax.oni.label_queue import Label
from motif_jax.published import import_motif, name_matching, pickles
from motif_jax.published.config import ImportAgentConfig
from motif_jax.published.import_motif import TorchCheckpoint
from motif_jax.published.pickles import Stub

_ALONE = "none"  # config.agent.reward.kind of an agent that learns from the task alone
LABELS = "labels.json"
TABLE = "llm_message_rewards"
DATASET = "reward_model_dataset"
MODEL = "reward_model"
_DEEPEST = 10
# Layers in the order of the published file.
_ORDER = (
    *("embedding", "conv1", "conv2", "conv3", "conv4", "conv5", "conv6"),
    *("message_fc", "classifier_fc1", "classifier_fc2", "classifier_head"),
)


def write_agent(config: ImportAgentConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes a run of ONI with its labels, and model.safetensors."""
    checkpoint = import_motif.read(config.path, "model")
    network = import_motif.network_of(config.agent)
    params, match = import_motif.agent(checkpoint, network, config.names)
    table = None
    network_params = None
    if config.agent["reward"]["kind"] != _ALONE:
        table = labels(checkpoint)
        network_params = None if table is None else classifier(checkpoint)
    begin()
    import_motif.write_mapping(checkpoint, match, workdir)
    agent, items = _write_labels(config.agent, table, network_params, workdir)
    step = int(checkpoint.number("env_steps") or 0)
    import_motif.write_run(params, agent, step, workdir, items)
    print(f"written to {workdir}")


def _write_labels(
    agent: Mapping[str, Any],
    table: dict[str, int] | None,
    network_params: Any | None,
    workdir: Path,
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The agent's config with the reward that an ONI checkpoint holds, and the checkpoint item of
    that reward.
    """
    if table is None:
        is_alone = agent["reward"]["kind"] == _ALONE
        reason = f"config.agent.reward.kind={_ALONE}" if is_alone else "no labels in it"
        print(f"{reason}: the agent is read without a reward")
        return _with_reward(agent, kind=_ALONE, intrinsic_coefficient=0.0), {}
    kind = "retrieval" if network_params is None else "classification"
    atomic_write_json(workdir / LABELS, table)
    share = sum(table.values()) / max(1, len(table))
    network = "" if network_params is None else ", and the classifier that learned from them"
    print(f"{len(table):,} labels, {100 * share:.3g} % helpful{network}: {workdir / LABELS}")
    item = reward_item(table, network_params, workdir)
    return _with_reward(agent, kind=kind), {"reward": item}


def _with_reward(agent: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """An agent's config with these values in its section `reward`."""
    return {**agent, "reward": {**agent["reward"], **values}}


def labels(checkpoint: TorchCheckpoint) -> dict[str, int] | None:
    """The checkpoint's labels, text -> 0 or 1; None without labels.

    They come from the table of labels, or without one from the classifier's examples, an object of
    the published package, whose parts are read as data.

    Raises UserError: a text is not a message, or a label is neither 0 nor 1.
    """
    for name in (TABLE, DATASET):
        values = dict(_pairs(checkpoint.content.get(name)))
        if values:
            return {text: _label(text, value) for text, value in values.items()}
    return None


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
    """The parameters of the checkpoint's classifier, None without one. Raises ValueError: its
    tensors do not match.
    """
    tensors = list(pickles.tensors(checkpoint.content.get(MODEL) or {}))
    if not tensors or DATASET not in checkpoint.content:
        return None
    abstract = jax.eval_shape(MessageClassifier().init, jax.random.key(0))
    # Only shapes are needed; bools take least memory.
    named = layout.to_torch(jax.tree.map(lambda leaf: np.empty(leaf.shape, np.bool_), abstract))
    shapes = {name: named[name].shape for name in sorted(named, key=_published_order)}
    match = name_matching.match(tensors, shapes)
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
