"""Splits parameters over devices by a table for each architecture.

The mesh has three axes. Batches are split over `data` and `fsdp`. Parameters, gradients and optimiser states are split over `fsdp` (Zhao
et al. 2023: each device holds a part and gathers a layer while computing it) and over `tensor` (Shoeybi et al. 2019: each device computes
its heads and its part of the feed-forward width). Devices along `data` hold copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from motif_jax.language.config import ModelConfig

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"
AXES = (DATA, FSDP, TENSOR)
# Mesh axes that a batch's rows are split over.
BATCH = (DATA, FSDP)


class ShardingRow(NamedTuple):
    """Parameters whose path ends like `pattern`, and a mesh axis or None for each of their axes."""

    pattern: str
    spec: tuple[str | None, ...]


_BLOCK = (
    ShardingRow("attention/query/kernel", (FSDP, TENSOR)),  # [width, heads * head_width]
    ShardingRow("attention/key/kernel", (FSDP, TENSOR)),
    ShardingRow("attention/value/kernel", (FSDP, TENSOR)),
    ShardingRow("attention/output/kernel", (TENSOR, FSDP)),
    ShardingRow("feed_forward/activated/kernel", (FSDP, TENSOR)),  # [width, feed_forward]
    ShardingRow("feed_forward/down/kernel", (TENSOR, FSDP)),
)
_GATE = (ShardingRow("feed_forward/factor/kernel", (FSDP, TENSOR)),)
_BIASES = (
    ShardingRow("attention/query/bias", (TENSOR,)),
    ShardingRow("attention/key/bias", (TENSOR,)),
    ShardingRow("attention/value/bias", (TENSOR,)),
)
_EMBEDDING = (ShardingRow("embedding", (TENSOR, FSDP)),)  # [vocabulary, width]
_HEAD = (ShardingRow("head/kernel", (FSDP, TENSOR)),)
_POSITIONS = (ShardingRow("position_embedding", (None, FSDP)),)
# `heads.Heads`: Q of every token is as large as the model's own head.
_ADDED = (ShardingRow("hidden_*/kernel", (FSDP, TENSOR)), ShardingRow("output/kernel", (FSDP, TENSOR)))

# The first matching row counts; parameters without one (norms, small biases) are whole on every device.
TABLES: dict[str, tuple[ShardingRow, ...]] = {
    "t5": (
        *_BLOCK,
        *(
            row._replace(pattern=f"cross_{row.pattern}")
            for row in _BLOCK
            if row.pattern.startswith("attention")
        ),
        *_GATE,
        *_EMBEDDING,
        *_HEAD,
        ShardingRow("relative_bias", (None, TENSOR)),  # [buckets, heads]
        *_ADDED,
    ),
    "gpt2": (
        *_BLOCK,
        *_BIASES,
        ShardingRow("feed_forward/activated/bias", (TENSOR,)),
        *_EMBEDDING,
        *_POSITIONS,
        *_HEAD,
        *_ADDED,
    ),
    "llama": (*_BLOCK, *_GATE, *_BIASES, *_EMBEDDING, *_HEAD, *_ADDED),
    "qwen2": (*_BLOCK, *_GATE, *_BIASES, *_EMBEDDING, *_HEAD, *_ADDED),
    "roberta": (
        *_BLOCK,
        *_BIASES,
        ShardingRow("feed_forward/activated/bias", (TENSOR,)),
        *_EMBEDDING,
        *_POSITIONS,
        *_ADDED,
    ),
}


def spec_of(
    path: Sequence[str], shape: Sequence[int], config: ModelConfig, sizes: Mapping[str, int]
) -> PartitionSpec:
    """The partition of one array.

    Args:
      path: names from the top of its tree (parameters, or an optimiser's or a training's state); only its end counts.
      shape: of the array. An axis stays whole where its mesh axis does not divide it (GPT-2's 50,257 tokens: `vocabulary.extend` adds
        rows).
      sizes: devices along each axis of the mesh.
    """
    names = "/".join(path).split(
        "/"
    )  # the keys of low-rank additions and quantised kernels are paths themselves
    if names[-1] in ("codes", "scales"):  # split like the kernel that they encode
        names[-1] = "kernel"
    whole = "/" + "/".join(names)
    row = next((row for row in TABLES[config.architecture] if fnmatchcase(whole, f"*/{row.pattern}")), None)
    if row is None or len(row.spec) != len(shape):
        return PartitionSpec()
    fits = [
        axis if axis is not None and size % sizes[axis] == 0 else None
        for axis, size in zip(row.spec, shape, strict=True)
    ]
    return PartitionSpec(*fits)


def path_names(path: Sequence[Any]) -> tuple[str, ...]:
    """The names on a jax key path."""
    return tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)


def split_bytes(tree: Any, config: ModelConfig, sizes: Mapping[str, int]) -> int:
    """Bytes that one device holds of a tree of arrays or shapes."""
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        spec = spec_of(path_names(path), leaf.shape, config, sizes)
        parts = math.prod(sizes[axis] for axis in spec if axis is not None)
        total += math.prod(leaf.shape) * leaf.dtype.itemsize // parts
    return total


def describe(config: ModelConfig, sizes: Mapping[str, int]) -> list[str]:
    """A line for each parameter: name, shape, the mesh axes that split it, and a device's share."""
    from motif_jax.language.model import LanguageModel

    lines, shapes = [], jax.eval_shape(LanguageModel(config).init, jax.random.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        spec = spec_of(path_names(path), leaf.shape, config, sizes)
        parts = math.prod(sizes[axis] for axis in spec if axis is not None)
        how = ", ".join(axis or "-" for axis in spec) or "whole"
        lines.append(f"{'/'.join(path_names(path))} {list(leaf.shape)} ({how}) 1/{parts}")
    return lines
