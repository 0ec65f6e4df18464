"""Splits parameters over devices by a table of their names.

The mesh has three axes. Batches are split over `data` and `fsdp`. Parameters, gradients and
optimiser states are split over `fsdp` (Zhao et al. 2023: each device holds a part and gathers a
layer while computing it) and over `tensor` (Shoeybi et al. 2019: each device computes its heads and
its part of the feed-forward width). Devices along `data` hold copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from jax.sharding import PartitionSpec

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"
AXES = (DATA, FSDP, TENSOR)
# Mesh axes that a batch's rows are split over.
BATCH = (DATA, FSDP)
_QKV = ("query", "key", "value")

# A mesh axis or None for each axis of the parameters whose path ends like a pattern. The first that
# matches counts; parameters without one (norms, small biases) are whole on every device.
TABLE: dict[str, tuple[str | None, ...]] = {
    **{f"*attention/{part}/kernel": (FSDP, TENSOR) for part in _QKV},  # [width, heads * head_width]
    "*attention/output/kernel": (TENSOR, FSDP),
    **{f"attention/{part}/bias": (TENSOR,) for part in _QKV},
    "feed_forward/activated/kernel": (FSDP, TENSOR),  # [width, feed_forward]
    "feed_forward/activated/bias": (TENSOR,),
    "feed_forward/factor/kernel": (FSDP, TENSOR),
    "feed_forward/down/kernel": (TENSOR, FSDP),
    "embedding": (TENSOR, FSDP),  # [vocabulary, width]
    "position_embedding": (None, FSDP),
    "relative_bias": (None, TENSOR),  # [buckets, heads]
    "head/kernel": (FSDP, TENSOR),
    # `heads.Heads`: Q of every token is as large as the model's own head.
    "hidden_*/kernel": (FSDP, TENSOR),
    "output/kernel": (FSDP, TENSOR),
}


def spec_of(path: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]) -> PartitionSpec:
    """The partition of one array over a mesh.

    An axis is not split where its mesh axis does not divide it (GPT-2's 50,257 tokens:
    `vocabulary.extend` adds rows).

    Args:
      path: names of the array in the tree of parameters; only the end counts.
      shape: of the array.
      sizes: mesh axis -> number of devices along it.
    """
    # The keys of low-rank additions and quantised kernels are paths themselves.
    names = "/".join(path).split("/")
    if names[-1] in ("codes", "scales"):  # split like the kernel that they encode
        names[-1] = "kernel"
    axes = _table_axes("/" + "/".join(names))
    if len(axes) != len(shape):
        return PartitionSpec()
    divisible = (
        axis if axis and size % sizes[axis] == 0 else None for axis, size in zip(axes, shape)
    )
    return PartitionSpec(*divisible)


def _table_axes(full_path: str) -> tuple[str | None, ...]:
    """The entry of `TABLE` for a parameter; () without one."""
    for pattern, axes in TABLE.items():
        if fnmatchcase(full_path, f"*/{pattern}"):
            return axes
    return ()


def path_names(path: Sequence[Any]) -> tuple[str, ...]:
    """The names on a jax key path."""
    return tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)
