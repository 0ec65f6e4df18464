"""Reads pickles and PyTorch's checkpoints as data: of what a file names, only numpy's arrays, plain
containers and torch's tensors are built.

Every other class or function becomes a `Stub`: nothing of the file is imported or run.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.files import regular_file

# What containers, bytes of old protocols and arrays of numpy (before version 2 and since) name.
_BUILT = frozenset(
    {
        "_codecs.encode",
        "builtins.bytes",
        "builtins.set",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "numpy.dtype",
        "numpy.ndarray",
        *(
            f"{inside}.{name}"
            for inside in ("numpy.core", "numpy._core")
            for name in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
        ),
    }
)
# torch asks for the class of each dtype that a numpy array in a file has.
_DTYPES = [
    type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]
]


class Stub:
    """In place of an object of an unknown class, or of what an unknown function would return.

    Attributes:
      arguments: those with which the class or function is called.
      state: what the object is filled with: its attributes, as a rule.
    """

    arguments: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *arguments: Any, **named: Any) -> Stub:
        # A pickle makes objects without calling `__init__`.
        stub = super().__new__(cls)
        stub.arguments = (*arguments, *named.values())
        return stub

    def __setstate__(self, state: Any) -> None:
        self.state = state

    # Objects of subclasses of containers are filled by these. Nobody reads their entries.
    def append(self, value: Any) -> None:
        del value

    extend = add = append

    def __setitem__(self, key: Any, value: Any) -> None:
        del key, value


def named(name: str) -> Any:
    """The class or function that a pickle means by MODULE.NAME; `Stub` for unknown ones."""
    # Python 2's name, which protocols below 3 write.
    name = name.replace("__builtin__.", "builtins.")
    if name not in _BUILT:
        return Stub
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return named(f"{module_name}.{global_name}")


def read_file(path: Path) -> Any:
    """The data of a pickle; damaged files raise whatever `pickle` raises."""
    with open(path, "rb", opener=regular_file) as file:
        return _DataUnpickler(file).load()


def read_checkpoint(path: str | Path) -> Any:
    """Reads a file of `torch.save`, with numpy arrays in place of tensors (float32 for bfloat16).

    An object of a class that is neither torch's nor numpy's, such as the dataset in a checkpoint of
    ONI, becomes a `Stub` with its attributes.

    Needs PyTorch, the extra `torch`, whose own errors say that a file is damaged or holds what it
    does not read as data.
    """
    # The one import of torch, where a file is opened.
    torch: Any = importlib.import_module("torch")
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
