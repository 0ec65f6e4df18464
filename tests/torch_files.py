"""Writes PyTorch's zip checkpoints by hand, since PyTorch is not there."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

STORAGES = {
    "<f4": "Float",
    "<f8": "Double",
    "<f2": "Half",
    "<i8": "Long",
    "<i4": "Int",
    "|u1": "Byte",
    "|b1": "Bool",
}


class Storage:
    def __init__(self, array: np.ndarray, kind: str | None = None) -> None:
        self.array = array
        self.kind = kind or STORAGES[array.dtype.str]


class Tensor:
    """A view of a storage, pickled as PyTorch does."""

    def __init__(
        self, storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.parts = (storage, offset, shape, strides, False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.parts


def tensor(array: np.ndarray) -> Tensor:
    array = np.ascontiguousarray(array)
    strides = tuple(step // array.itemsize for step in array.strides)
    return Tensor(Storage(array.reshape(-1)), 0, array.shape, strides)


@contextmanager
def _pretend_torch() -> Iterator[None]:
    """Modules with the names that the pickle must say; nothing in them can run."""
    modules = {"torch": types.ModuleType("torch"), "torch._utils": types.ModuleType("torch._utils")}
    for name in (*STORAGES.values(), "BFloat16"):
        storage = type(f"{name}Storage", (), {"__module__": "torch"})
        setattr(modules["torch"], storage.__name__, storage)

    def _rebuild_tensor_v2(*_: Any) -> None:
        raise AssertionError("a pickle was executed")

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    modules["torch._utils"]._rebuild_tensor_v2 = _rebuild_tensor_v2
    modules["torch"]._utils = modules["torch._utils"]
    with mock.patch.dict(sys.modules, modules):
        yield


def write(path: Path, content: Any, folder: str = "archive", protocol: int = 2) -> Path:
    """Writes `content`, in which `tensor(array)` stands for tensors, as `torch.save` would."""
    storages: list[Storage] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            if not isinstance(value, Storage):
                return None
            if not any(value is other for other in storages):
                storages.append(value)
            key = next(i for i, other in enumerate(storages) if other is value)
            kind = getattr(sys.modules["torch"], f"{value.kind}Storage")
            return ("storage", kind, str(key), "cpu", value.array.size)

    data = io.BytesIO()
    with _pretend_torch():
        Pickler(data, protocol=protocol).dump(content)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/data.pkl", data.getvalue())
        archive.writestr(f"{folder}/byteorder", "little")
        for key, storage in enumerate(storages):
            archive.writestr(f"{folder}/data/{key}", storage.array.tobytes())
        archive.writestr(f"{folder}/version", "3\n")
    return path
