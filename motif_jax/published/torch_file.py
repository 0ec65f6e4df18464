"""Reads the tensors of a PyTorch checkpoint (.pth) without PyTorch and without running any of its code.

A checkpoint is a zip archive: data.pkl describes objects in pickle's opcodes, data/0, data/1 ... hold the bytes of
the tensors. Pickle is a language that can call any function; here its opcodes are only read. Containers and
numbers are built, the few calls that make a tensor are understood, and every other call becomes an inert
`Unread` that says what it would have been.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.support.errors import UserError

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
_TENSOR_CALLS = ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2")
_PARAMETER_CALLS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_SCALAR_CALLS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")


@dataclasses.dataclass(frozen=True)
class Unread:
    """Stands for an object that is no plain data: its class or function, what it was given, nothing more."""

    name: str
    arguments: Any = None


@dataclasses.dataclass(frozen=True)
class _Global:
    name: str


_MARK = object()
_DEEPEST = 50


def read_checkpoint(path: str | Path) -> Any:
    """Reads the object that a checkpoint holds.

    Args:
      path: a file that `torch.save` wrote in its zip format (the default since PyTorch 1.6).

    Returns:
      Dictionaries, lists, tuples, strings, numbers, numpy arrays in place of tensors, and `Unread`.

    Raises:
      UserError: the file is not such an archive, is damaged, compressed or encrypted, or uses opcodes that no
        checkpoint needs.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _refuse_packed(path, archive)
            names = archive.namelist()
            pickles = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise UserError(f"{path} is a zip file but no PyTorch checkpoint: it has no data.pkl")
            prefix = pickles[0].removesuffix("data.pkl")
            order = f"{prefix}byteorder"
            if order in names and archive.read(order).strip() != b"little":
                raise UserError(f"{path}: only little-endian checkpoints are read")
            return _Reader(path, archive, prefix).read(archive.read(pickles[0]))
    except zipfile.BadZipFile:
        raise UserError(
            f"{path} is no PyTorch checkpoint in zip format (PyTorch 1.6 and later write it): load and save it again "
            "with a newer PyTorch, or it is damaged"
        ) from None
    except (
        LookupError, ValueError, TypeError, AttributeError, EOFError, ArithmeticError, RuntimeError, MemoryError
    ) as error:  # fmt: skip
        raise UserError(
            f"{path} is damaged or no PyTorch checkpoint: {type(error).__name__}: {error}"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def _refuse_packed(path: Path, archive: zipfile.ZipFile) -> None:
    """torch.save stores its members as they are; another's packing could swell to any size."""
    for member in archive.infolist():
        if member.flag_bits & 1:
            raise UserError(f"{path}: {member.filename} is encrypted, which torch.save never does")
        if member.compress_type != zipfile.ZIP_STORED:
            raise UserError(
                f"{path}: {member.filename} is compressed, which torch.save never does: unpack it and zip it with zip -0"
            )


class _Reader:
    """Follows the opcodes of one pickle with a stack and a memo."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, prefix: str) -> None:
        self._path, self._archive, self._prefix = path, archive, prefix
        self._stack: list[Any] = []
        self._memo: dict[Any, Any] = {}

    def read(self, data: bytes) -> Any:
        """Returns the object that `data` describes."""
        stack = self._stack
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            name = opcode.name
            if name == "STOP":
                return stack.pop()
            if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _LITERALS:
                stack.append(argument)
            elif name in _EMPTY:
                stack.append(_EMPTY[name]())
            elif name == "MARK":
                stack.append(_MARK)
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                self._memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(self._memo[argument])
            elif name not in ("PROTO", "FRAME"):
                self._build(name, argument)
        raise ValueError("the pickle has no end")

    def _build(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "LIST":
            stack.append(list(self._since_mark()))
        elif name == "DICT":
            stack.append(dict(_pairs(self._since_mark())))
        elif name == "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        elif name == "APPENDS":
            values = self._since_mark()
            stack[-1].extend(values)
        elif name == "ADDITEMS":
            values = self._since_mark()
            stack[-1].update(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            self._set(stack[-1], [(key, value)])
        elif name == "SETITEMS":
            pairs = list(_pairs(self._since_mark()))
            self._set(stack[-1], pairs)
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "GLOBAL":
            stack.append(_Global(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(_Global(f"{module}.{attribute}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            stack.append(self._call(function, arguments))
        elif name == "NEWOBJ_EX":
            named, arguments, function = stack.pop(), stack.pop(), stack.pop()
            stack.append(Unread(_name(function), (arguments, named)))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Unread):
                stack[-1] = Unread(stack[-1].name, (stack[-1].arguments, state))
        elif name == "BINPERSID":
            stack.append(self._storage(stack.pop()))
        else:
            raise UserError(f"{self._path}: opcode {name} is not read, no checkpoint needs it")

    def _since_mark(self) -> list[Any]:
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    @staticmethod
    def _set(target: Any, pairs: list[tuple[Any, Any]]) -> None:
        if isinstance(target, dict):
            target.update(pairs)

    def _storage(self, reference: Any) -> np.ndarray:
        """Reads the flat array that ('storage', class, key, location, numel) names."""
        kind, storage, key, _, numel = reference
        name = _name(storage).rpartition(".")[2]
        if kind != "storage" or name not in STORAGES:
            raise UserError(f"{self._path}: storage {name} is not read")
        dtype = np.dtype(STORAGES[name])
        flat = np.frombuffer(self._archive.read(f"{self._prefix}data/{key}"), dtype)
        if flat.size < numel:
            raise ValueError(f"storage {key} has {flat.size} entries, not {numel}")
        if name == "BFloat16Storage":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        return flat[:numel]

    def _call(self, function: Any, arguments: Any) -> Any:
        name = _name(function)
        if name in _TENSOR_CALLS:
            return _tensor(*arguments[:4])
        if name in _PARAMETER_CALLS:
            return arguments[0]
        if name == "collections.OrderedDict":
            return dict(arguments[0]) if arguments else {}
        if name == "torch.Size":
            return tuple(arguments[0])
        if name == "_codecs.encode":
            text, encoding = arguments
            if encoding != "latin1":
                raise ValueError(f"bytes in {encoding}")
            return text.encode("latin-1")
        if name == "numpy.dtype":
            return _Global(f"numpy.dtype:{arguments[0]}")
        if name in _SCALAR_CALLS:
            dtype = np.dtype(_name(arguments[0]).removeprefix("numpy.dtype:"))
            if dtype.hasobject:
                raise ValueError("a scalar of objects")
            return np.frombuffer(arguments[1], dtype, 1)[0]
        return Unread(name, arguments)


def _name(function: Any) -> str:
    return function.name if isinstance(function, _Global | Unread) else f"<{type(function).__name__}>"


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(values[::2], values[1::2], strict=True)


def _tensor(storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A copy of the part of a flat storage that a tensor shows; strides in entries."""
    if math.prod(shape) > storage.size:
        raise ValueError(f"a tensor of shape {list(shape)} repeats its storage of {storage.size}")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min(shape, default=1) == 0:
        return np.empty(shape, storage.dtype)
    if min((offset, *strides, *shape)) < 0 or last >= storage.size:
        raise ValueError(f"a tensor of shape {list(shape)} goes beyond its storage of {storage.size}")
    view = np.lib.stride_tricks.as_strided(
        storage[offset:], shape, [stride * storage.itemsize for stride in strides], writeable=False
    )
    return np.ascontiguousarray(view).reshape(shape)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_LITERALS = frozenset(
    """INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8""".split()
)


def tensors(tree: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (dotted name, array) of all tensors in what `read_checkpoint` gives, in the file's order.

    Raises:
      UserError: it is nested deeper than any model is, or contains itself.
    """
    if isinstance(tree, np.ndarray):
        yield prefix.removesuffix("."), tree
        return
    if depth > _DEEPEST:
        raise UserError(f"the checkpoint is nested deeper than {_DEEPEST} levels, or contains itself")
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors(value, f"{prefix}{key}.", depth + 1)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from tensors(value, f"{prefix}{index}.", depth + 1)
