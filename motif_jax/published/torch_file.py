"""Reads the tensors of a PyTorch checkpoint (.pth) without PyTorch and without running its code.

A checkpoint is a zip archive: data.pkl describes objects in pickle's opcodes; data/0, data/1, ...
have the bytes of the tensors. The few calls that make a tensor or numpy's array are known; all
others become an inert `Unread`.
"""

from __future__ import annotations

import functools
import itertools
import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.published.pickles import ARRAYS, PickleReader, name_of, reading

# Storage class -> dtype of its bytes. bfloat16 is widened by hand.
STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_DEEPEST = 50
MAX_PARTS = 10_000_000
_LONGEST_NAME = 10_000


def read_checkpoint(path: str | Path) -> Any:
    """Reads a file of `torch.save` in its zip format, with numpy arrays for tensors.

    Raises:
      UserError: the file is not such an archive, is damaged, compressed or encrypted, or uses
        opcodes that no checkpoint needs.
    """
    path = Path(path)
    description = "a whole PyTorch checkpoint in zip format"
    with (
        reading(
            path,
            description,
            ": PyTorch 1.6 and later write it; load and save an older one with these",
        ),
        zipfile.ZipFile(path) as archive,
    ):
        # A bomb: some kilobytes that unpack to terabytes. `torch.save` stores members as they are.
        if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
            reason = "it is damaged, or compressed, which torch.save never does (unpack it, zip -0)"
            raise UserError(f"{path} claims more bytes than it has: {reason}")
        # None or several are a ValueError, which `reading` puts into words.
        (pickle_name,) = (name for name in archive.namelist() if f"/{name}".endswith("/data.pkl"))
        storages = _storages(archive, pickle_name.removesuffix("data.pkl"))
        reader = PickleReader(_CALLS, storages, unread=True, size=path.stat().st_size)
        return reader.read(archive.read(pickle_name))


def _storages(archive: zipfile.ZipFile, prefix: str) -> Callable[[Any], np.ndarray]:
    """A function from a reference ('storage', class, key, location, numel) to its flat array; each
    is read once.
    """

    @functools.cache
    def flat(name: str, key: str) -> np.ndarray:
        array = np.frombuffer(archive.read(f"{prefix}data/{key}"), STORAGES[name])
        if name == "BFloat16Storage":  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def read(reference: Any) -> np.ndarray:
        kind, storage, key, _, numel = reference
        name = name_of(storage).rpartition(".")[2]
        if (
            kind != "storage"
            or name not in STORAGES
            or not isinstance(key, str)
            or type(numel) is not int
        ):
            raise ValueError(f"storage {name} is not supported")
        array = flat(name, key)
        if array.size < numel:
            raise ValueError(f"storage {key} has {array.size} entries, not {numel}")
        return array[:numel]

    return read


class Tensor(np.ndarray):
    """What was a tensor of PyTorch, and not an array of numpy's beside it."""


def _tensor(
    storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> np.ndarray:
    """A copy of a tensor's part of a flat storage; strides are in entries."""
    # Strides of 0 repeat an entry: the copy below could then have any size.
    if math.prod(shape) > storage.size:
        raise ValueError(f"a tensor of shape {list(shape)} repeats its storage of {storage.size}")
    # `as_strided` looks at no bounds: this is the last entry that the tensor reads.
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(shape, default=1) == 0:
        return np.empty(shape, storage.dtype).view(Tensor)
    if min((offset, *strides, *shape)) < 0 or last >= storage.size:
        raise ValueError(
            f"a tensor of shape {list(shape)} goes beyond its storage of {storage.size}"
        )
    in_bytes = [stride * storage.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, in_bytes, writeable=False)
    return np.ascontiguousarray(view).reshape(shape).view(Tensor)


_CALLS: dict[str, Callable[..., Any]] = {
    **ARRAYS,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch.Size": tuple,
}


def tensors(tree: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (dotted name, array) of a checkpoint's tensors. Raises UserError: it is larger than
    any model, or has a cycle.
    """
    return _tensors(tree, "", 0, itertools.count(1))


def _tensors(
    tree: Any, prefix: str, depth: int, parts: Iterator[int]
) -> Iterator[tuple[str, np.ndarray]]:
    if depth > _DEEPEST or len(prefix) > _LONGEST_NAME or next(parts) > MAX_PARTS:
        raise UserError(
            f"the checkpoint is nested deeper than {_DEEPEST} levels, has more than {MAX_PARTS:,} parts, or contains itself"
        )
    if isinstance(tree, Tensor):
        yield prefix.removesuffix("."), tree.view(np.ndarray)
    elif isinstance(tree, dict | list | tuple):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _tensors(value, f"{prefix}{key}.", depth + 1, parts)
