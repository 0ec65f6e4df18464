"""Converts between PyTorch's parameter layout and this project's flax trees.

A tensor's neutral name is LAYER/weight, LAYER/bias or LAYER/NAME_table, with the layer's name in
the flax tree. With a separate critic the names begin with actor/ or critic/. Layouts:

| layer | PyTorch | flax |
|---|---|---|
| linear, recurrent gates | weight [out, in] | kernel [in, out] |
| convolution | weight [out, in, k...] | kernel [k..., in, out] |
| embedding | weight [entries, features] | embedding [entries, features] |
| bias | bias [out] | bias [out] |

Networks here flatten channels first and have PyTorch's order of gates, so that no entries are
permuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.nets.classifier import MessageClassifier
from motif_jax.nets.reward import RewardNetwork

TRUNKS = ("actor", "critic")
# A reward network, or the classifier of an online reward.
Network = RewardNetwork | MessageClassifier
# Layers of the reward network in the order of the published network and its files.
LAYER_ORDER = (
    "glyph_embedding",
    "blstats_fc1",
    "blstats_fc2",
    "glyph_conv1",
    "glyph_conv2",
    "glyph_conv3",
    "glyph_conv4",
    "crop_conv1",
    "crop_conv2",
    "crop_conv3",
    "crop_conv4",
    "embedding",
    "conv1",
    "conv2",
    "conv3",
    "conv4",
    "conv5",
    "conv6",
    "message_fc",
    "message_fc1",
    "message_fc2",
    "fc1",
    "fc2",
    "reward_head",
)


def from_torch(tensors: Mapping[str, np.ndarray], params: Any) -> Any:
    """A tree like `params` with values from tensors in PyTorch's layout, as numpy arrays with the
    dtypes of the leaves.

    Args:
      tensors: neutral name -> array in PyTorch's layout.
      params: tree of arrays or shapes (`jax.eval_shape` of an init).

    Raises:
      ValueError: names are missing or superfluous, or a shape differs.
    """
    expected = tensor_names(params)
    missing = sorted(expected - tensors.keys())
    unexpected = sorted(tensors.keys() - expected)
    if missing or unexpected:
        raise ValueError(
            f"tensors do not fit the network: missing {missing}, unexpected {unexpected}"
        )

    def fill(path: Any, leaf: Any) -> np.ndarray:
        name = _name(path, params)
        value = np.asarray(tensors[name])
        if _keys(path)[-1] == "kernel":
            # [out, in, k...] to [k..., in, out].
            value = np.moveaxis(value, (1, 0), (-2, -1))
        if value.shape != leaf.shape:
            raise ValueError(
                f"tensor {name} has shape {tensors[name].shape}, which does not fit {leaf.shape}"
            )
        return np.ascontiguousarray(value, dtype=leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, params)


def to_torch(params: Any) -> dict[str, np.ndarray]:
    """The inverse of `from_torch`: neutral name -> array in PyTorch's layout."""
    tensors = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        value = np.asarray(leaf)
        if _keys(path)[-1] == "kernel":
            value = np.moveaxis(value, (-1, -2), (0, 1))
        tensors[_name(path, params)] = value
    return tensors


def from_named(named: Mapping[str, np.ndarray], network: Network) -> Any:
    """The inverse of `to_torch`: parameters of `network`, numpy float32; names in `named`
    that it does not have are ignored.

    Raises:
      ValueError: an array is missing or has another shape; the error names it and both shapes.
    """
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    expected = tensor_names(abstract)
    tensors = {name: array for name, array in named.items() if name in expected}
    return from_torch(tensors, abstract)


def named_shapes(network: RewardNetwork) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape in PyTorch's order, in the order of the published network's layers."""
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    # `to_torch` moves axes of real arrays, so that it gets empty ones; bool takes the least memory.
    named = to_torch(jax.tree.map(lambda leaf: np.empty(leaf.shape, np.bool_), abstract))
    return {name: named[name].shape for name in sorted(named, key=_published_order)}


def tensor_names(params: Any) -> set[str]:
    """The neutral names of the leaves of `params`."""
    return {_name(path, params) for path, _ in jax.tree_util.tree_leaves_with_path(params)}


def _keys(path: Any) -> list[str]:
    return [str(entry.key) for entry in path]


def _name(path: Any, params: Any) -> str:
    *scopes, layer, leaf = _keys(path)
    separate_critic = all(trunk in params for trunk in TRUNKS)
    prefix = []
    if separate_critic and scopes and scopes[0] in TRUNKS:
        prefix = [scopes[0]]
    # Several tables may lie in one layer, which has one kernel or embedding at most.
    keeps_name = leaf == "bias" or leaf.endswith("_table")
    return "/".join([*prefix, layer, leaf if keeps_name else "weight"])


def _published_order(name: str) -> tuple[int, bool]:
    layer, kind = name.split("/")
    return LAYER_ORDER.index(layer), kind == "bias"
