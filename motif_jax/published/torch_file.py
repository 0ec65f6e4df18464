"""Reads PyTorch's checkpoints with `torch.load(weights_only=True)`, and so without running their
code.

Only this module needs PyTorch, the extra `torch`, and imports it where a file is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.published.pickles import Stub, named

# torch asks for the class of each dtype that a numpy array in a file has.
_DTYPES = [
    type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]
]


def read_checkpoint(path: str | Path) -> Any:
    """Reads a file of `torch.save`, with numpy arrays in place of tensors (float32 for bfloat16).

    An object of a class that is neither torch's nor numpy's, such as the dataset in a checkpoint of
    ONI, becomes a `Stub` with its attributes.

    Raises:
      UserError: PyTorch is not installed.
      ValueError, RuntimeError, pickle.UnpicklingError: PyTorch's own errors, of files that are
          damaged or that hold what it does not read as data.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ModuleNotFoundError:
        raise UserError(
            f"{path}: PyTorch's files need the package torch: pip install -e '.[torch]'"
        ) from None
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    known = [(named(name), name) for name in names]
    with torch.serialization.safe_globals([*known, *_DTYPES]):
        content = torch.load(path, map_location="cpu", weights_only=True)
    return _with_arrays(content, torch, {})


def _with_arrays(value: Any, torch: Any, converted: dict[int, Any]) -> Any:
    """A copy of `value` with arrays in place of tensors.

    `converted` has the copies of containers by the identity of the original: parts may refer to
    each other.
    """
    if isinstance(value, torch.Tensor):
        # numpy has no bfloat16.
        tensor = value.float() if value.dtype == torch.bfloat16 else value
        return tensor.detach().numpy()
    if isinstance(value, tuple):
        return tuple(_with_arrays(part, torch, converted) for part in value)
    if not isinstance(value, dict | list | Stub):
        return value
    if id(value) in converted:
        return converted[id(value)]
    if isinstance(value, dict):
        copy: Any = {}
        converted[id(value)] = copy
        copy.update((key, _with_arrays(part, torch, converted)) for key, part in value.items())
    elif isinstance(value, list):
        copy = []
        converted[id(value)] = copy
        copy.extend(_with_arrays(part, torch, converted) for part in value)
    else:
        copy = Stub(*_with_arrays(value.arguments, torch, converted))
        converted[id(value)] = copy
        copy.state = _with_arrays(value.state, torch, converted)
    return copy


def tensors(tree: Any, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields (dotted name, array) of the arrays in dictionaries, lists and tuples, in their
    order.
    """
    if isinstance(tree, np.ndarray):
        yield prefix.removesuffix("."), tree
    elif isinstance(tree, dict | list | tuple):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from tensors(value, f"{prefix}{key}.")
