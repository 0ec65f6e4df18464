"""Reads the header of a GGUF file: its metadata, and where its tensors are.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` has a
reader, too, but that makes several arrays for each token of the vocabulary (262,144 of a Gemma).
Types of tensors and their numbers are the package's.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# Metadata types by their number, as numpy's little-endian dtypes.
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_ALIGNMENT = 32
_MAX_DIMENSIONS = 4


class TensorPlace(NamedTuple):
    """Where a tensor is in its file.

    Attributes:
      shape: as in PyTorch, the slowest axis first (GGUF lists axes in the reverse order).
      type: of `gguf.GGMLQuantizationType`.
      start: of its bytes in the file.
      row_bytes: of one row, the last axis.
    """

    shape: tuple[int, ...]
    type: Any
    start: int
    row_bytes: int

    @property
    def rows(self) -> int:
        """The number of rows, all axes but the last together."""
        return int(np.prod(self.shape[:-1], dtype=np.int64))


class Header(NamedTuple):
    """The metadata by their keys, arrays of numbers as numpy arrays, and the tensors by llama.cpp's
    names.
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorPlace]


def is_gguf(path: str | Path) -> bool:
    """Whether a path is a GGUF file by its name."""
    return Path(path).suffix == SUFFIX and Path(path).is_file()


def package(path: str | Path) -> ModuleType:
    """The package `gguf`. Raises UserError where it is not installed; `path` is the file that needs
    it.
    """
    try:
        import gguf
    except ImportError:
        raise UserError(
            f"{path}: GGUF files need the package gguf: pip install 'motif-jax[gguf]'"
        ) from None
    return gguf


def read(path: str | Path) -> Header:
    """Reads the header of a file; the same file is read once in a process.

    Raises:
      UserError: the file is not a GGUF file, is damaged, cut off or one of several parts, or the
          package `gguf` is not installed.
    """
    try:
        state = os.stat(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    return _read_version(str(path), state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_version(path: str, size: int, modified: int) -> Header:
    del modified  # a part of the cache's key
    # Before the file is read: without the package no tensor could be.
    package(path)
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise UserError(f"{path} is not a GGUF file: it does not begin with {_MAGIC.decode()}")
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Reader(data).header(path)
        except (struct.error, ValueError, KeyError, OverflowError) as error:
            raise UserError(
                f"{path} is damaged or cut off: its header cannot be read ({error})"
            ) from None
    parts = header.metadata.get("split.count", 1)
    if type(parts) is not int:
        raise UserError(f"{path} is damaged: split.count is {parts!r}, must be a whole number")
    if parts > 1:
        raise UserError(f"{path} is one of {parts} parts: join them with llama-gguf-split --merge")
    for name, tensor in header.tensors.items():
        if tensor.start + tensor.rows * tensor.row_bytes > size:
            raise UserError(f"{path} is cut off: tensor {name} extends past the end of the file")
    return header


class _Reader:
    """Reads values one after the other; raises struct.error or ValueError where the data end
    before.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._position = len(_MAGIC)
        self._of_type: dict[int, Callable[[], Any]] = {_STRING: self._text, _ARRAY: self._array}
        for number, dtype in _NUMBERS.items():
            self._of_type[number] = functools.partial(self._number, dtype)

    def header(self, path: str) -> Header:
        version = self._number("<u4")
        if version not in _VERSIONS:
            raise UserError(f"{path} has version {version} of GGUF, must be 2 or 3, little-endian")
        num_tensors = self._number("<u8")
        num_keys = self._number("<u8")
        metadata = {}
        for _ in range(num_keys):
            key = self._text()
            # A type that is not in the table is a KeyError, which `_read_version` takes for damage.
            metadata[key] = self._of_type[self._number("<u4")]()
        entries = {}
        for _ in range(num_tensors):
            name = self._text()
            entries[name] = self._tensor_entry()
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}, must be a whole number above 0")
        # Tensors begin at the next multiple of the alignment after the header; their offsets count
        # from there.
        begin = -(-self._position // alignment) * alignment
        return Header(
            metadata, {name: _place(path, name, begin, *entry) for name, entry in entries.items()}
        )

    def _tensor_entry(self) -> tuple[tuple[int, ...], int, int]:
        """The shape, the number of the type, and the offset of the next tensor."""
        dimensions = self._number("<u4")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"a tensor of {dimensions} axes")
        shape = tuple(self._number("<u8") for _ in range(dimensions))
        kind = self._number("<u4")
        # GGUF lists the fastest axis first.
        return shape[::-1], kind, self._number("<u8")

    def _number(self, dtype: str) -> Any:
        return self._numbers(dtype, 1)[0].item()

    def _numbers(self, dtype: str, count: int) -> np.ndarray:
        size = np.dtype(dtype).itemsize * count
        if self._position + size > len(self._data):
            raise ValueError("the file ends in it")
        # A copy, since an array on the map would keep the file open.
        values = np.frombuffer(self._data, dtype, count, self._position).copy()
        self._position += size
        return values

    def _text(self) -> str:
        # Of a large vocabulary this is called half a million times.
        (length,) = struct.unpack_from("<Q", self._data, self._position)
        start = self._position + 8
        if start + length > len(self._data):
            raise ValueError("the file ends in it")
        self._position = start + length
        # Tokens may be parts of a character.
        return self._data[start : self._position].decode("utf-8", "surrogateescape")

    def _array(self) -> list[str] | np.ndarray:
        kind = self._number("<u4")
        count = self._number("<u8")
        if kind == _STRING:
            return [self._text() for _ in range(count)]
        return self._numbers(_NUMBERS[kind], count)


def _place(
    path: str, name: str, begin: int, shape: tuple[int, ...], kind: int, offset: int
) -> TensorPlace:
    gguf = package(path)
    try:
        quantisation = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise UserError(
            f"{path}: tensor {name} is of type {kind}, which this version of the package gguf does not know"
        ) from None
    block, block_bytes = gguf.GGML_QUANT_SIZES[quantisation]
    width = shape[-1] if shape else 1
    if width % block:
        raise ValueError(f"tensor {name} has rows of {width} numbers, no multiple of {block}")
    # A scalar is a row of one number. Quantised rows are whole blocks.
    return TensorPlace(shape or (1,), quantisation, begin + offset, width // block * block_bytes)
