"""Converts a checkpoint's items to Orbax's trees of arrays and back."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

# Stands in an abstract tree for an item that was saved as plain JSON-able data.
JSON = "json"
# Stands in an abstract tree for an item that is restored as it was saved.
ANY = "any"


def pack(item: Any, copy: bool = True) -> Any:
    """A tree of arrays as whole numpy arrays on this host; anything else as JSON in an array of
    bytes.

    Without `copy` an array may share memory with the one of a device.
    """
    leaves = jax.tree.leaves(item)
    if leaves and all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in leaves):
        # Gathering is collective: all hosts pack, also those that write nothing.
        arrays = jax.device_get(jax.tree.map(_gathered, item))
        return jax.tree.map(np.array if copy else np.asarray, arrays)
    # Bytes in an array: Orbax stores arrays and rejects a tree of one string.
    return {JSON: np.frombuffer(json.dumps(item).encode(), np.uint8)}


def _gathered(leaf: Any) -> Any:
    """Gathers an array that is split over hosts; returns any other leaf unchanged."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return leaf
    return multihost_utils.process_allgather(leaf, tiled=True)


def unpack(loaded: Any, item: Any) -> Any:
    """Reverses `pack` on an item that Orbax has loaded; `item` is its entry in the abstract
    tree.
    """
    # A tree whose one name is `JSON` was made of plain data.
    if item is ANY and set(loaded) != {JSON}:
        return jax.tree.map(np.asarray, loaded)
    return json.loads(np.asarray(loaded[JSON]).tobytes()) if isinstance(item, str) else loaded


def as_host_arrays(tree: Any) -> Any:
    """Numpy arrays with a tree's shapes and dtypes, which make Orbax restore numpy arrays."""
    return jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), tree)


def describe(tree: Any) -> dict[str, str]:
    """Maps 'a/b/0' to 'float32[3,4]' for every leaf."""
    described: dict[str, str] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            described[name] = f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
    return described
