"""Reward parameters under framework-independent names (LAYER/weight, LAYER/bias), in PyTorch's axis
order, as in published files.

See `layout` for the names and the axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.nets import layout
from motif_jax.nets.classifier import MessageClassifier
from motif_jax.nets.reward import RewardNetwork

# Layers in the order of the published network and its files.
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


# A reward network, or the classifier of an online reward.
Network = RewardNetwork | MessageClassifier


def from_named(named: Mapping[str, np.ndarray], network: Network) -> Any:
    """The inverse of `layout.to_torch`: parameters of `network`, numpy float32; names in `named`
    that it does not have are ignored.

    Raises:
      ValueError: an array is missing or has another shape; the error names it and both shapes.
    """
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    expected = layout.tensor_names(abstract)
    tensors = {name: array for name, array in named.items() if name in expected}
    return layout.from_torch(tensors, abstract)


def named_shapes(network: RewardNetwork) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape in PyTorch's order, in the order of the published network's layers."""
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    # `to_torch` moves axes of real arrays, so that it gets empty ones; bool takes the least memory.
    named = layout.to_torch(jax.tree.map(lambda leaf: np.empty(leaf.shape, np.bool_), abstract))
    return {name: named[name].shape for name in sorted(named, key=_published_order)}


def _published_order(name: str) -> tuple[int, bool]:
    layer, kind = name.split("/")
    return LAYER_ORDER.index(layer), kind == "bias"
