"""Names and axis orders of reward parameters outside this project: PyTorch's, used by exchanged files too.

PyTorch keeps linear weights [out, in] and convolutions [out, in, width...]; Flax [in, out] and
[width..., in, out]. The neutral names are those of tests/golden/weight_shapes.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from motif_jax.networks.reward import RewardNetwork

EMBEDDINGS = ("embedding", "glyph_embedding")


def _neutral_name(path: tuple[Any, ...]) -> str:
    names = [str(part.key) for part in path]
    if names[-1] in EMBEDDINGS:
        return f"{names[-1]}/weight"
    return f"{names[-2]}/{'weight' if names[-1] == 'kernel' else names[-1]}"


def _outputs_first(array: np.ndarray) -> np.ndarray:
    """[..., in, out] -> [out, in, ...]."""
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(array, -1, 0), -1, 1)) if array.ndim > 1 else array


def _outputs_last(array: np.ndarray) -> np.ndarray:
    """[out, in, ...] -> [..., in, out]."""
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(array, 1, -1), 0, -1)) if array.ndim > 1 else array


def to_named(params: Any) -> dict[str, np.ndarray]:
    """Maps parameters of ONE network to neutral names and PyTorch's axis orders."""
    named = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = _neutral_name(path)
        named[name] = (
            np.asarray(leaf) if name.split("/")[0] in EMBEDDINGS else _outputs_first(np.asarray(leaf))
        )
    return named


def from_named(named: Mapping[str, np.ndarray], network: RewardNetwork) -> Any:
    """Builds parameters of `network` from arrays by neutral name.

    Args:
      named: what `to_named` gives; names that the network does not have are ignored.
      network: says which arrays and shapes are wanted.

    Returns:
      The parameters, numpy float32.

    Raises:
      ValueError: an array is missing or has another shape; it is named with both shapes.
    """

    def build(path: tuple[Any, ...], wanted: jax.ShapeDtypeStruct) -> np.ndarray:
        name = _neutral_name(path)
        if name not in named:
            raise ValueError(f"there is no array {name}")
        array = np.asarray(named[name], np.float32)
        if name.split("/")[0] not in EMBEDDINGS:
            array = _outputs_last(array)
        if array.shape != wanted.shape:
            raise ValueError(f"{name}: shape {list(array.shape)}, {list(wanted.shape)} wanted (outputs last)")
        return array

    abstract = jax.eval_shape(network.init, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(build, abstract)


def named_shapes(network: RewardNetwork) -> dict[str, tuple[int, ...]]:
    """Neutral name -> shape in PyTorch's order, in the order of the published network's layers."""
    abstract = jax.eval_shape(network.init, jax.random.key(0))
    shapes = {
        name: array.shape
        for name, array in to_named(jax.tree.map(lambda a: np.empty(a.shape), abstract)).items()
    }
    return {name: shapes[name] for name in sorted(shapes, key=_published_order)}


_ORDER = (
    "glyph_embedding blstats_fc1 blstats_fc2 glyph_conv1 glyph_conv2 glyph_conv3 glyph_conv4 crop_conv1 crop_conv2 "
    "crop_conv3 crop_conv4 embedding conv1 conv2 conv3 conv4 conv5 conv6 message_fc message_fc1 message_fc2 fc1 fc2 "
    "reward_head"
).split()


def _published_order(name: str) -> tuple[int, int]:
    layer, kind = name.split("/")
    return _ORDER.index(layer), kind == "bias"
