"""Reads a GGUF file: its metadata, and its tensors under transformers' names, in float32 or another
dtype, a part of the rows at a time.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` has a
reader, too, but that makes several arrays for each token of the vocabulary (262,144 of a Gemma).
Types of tensors and their numbers are the package's.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
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
# llama.cpp's names of three tensors; the last one has divisors of rotary frequencies (Llama 3).
EMBEDDING, HEAD, ROTARY_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
# Types that are read, in the words of llama.cpp. Others need lookup tables that the package gguf
# has not all of.
TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
)  # fmt: skip
_OUTSIDE = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    HEAD: "lm_head.weight",
}
_LLAMA = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_QUERY_KEY_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
# By llama.cpp's architecture.
_IN_BLOCK = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": {**_LLAMA, **_QUERY_KEY_NORMS},
    "gemma3": {
        **_LLAMA,
        **_QUERY_KEY_NORMS,
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
# Architectures whose norms are stored with 1 added.
_WITH_ONE = ("gemma3",)
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
# Queries and keys, whose rows llama.cpp reorders for Llama (and for no other architecture that is
# read here).
_REORDERED = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
# Numbers that are unpacked at a time: 16 MB of float32.
NUMBERS_AT_ONCE = 1 << 22


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


def read(path: str | Path) -> Header:
    """Reads the header of a file; the same file is read once in a process.

    Raises:
      UserError: the file is not a GGUF file of a version that is read.
    """
    state = os.stat(path)
    return _read_version(str(path), state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_version(path: str, size: int, modified: int) -> Header:
    del size, modified  # parts of the cache's key
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        magic, version = struct.unpack_from("<4sI", data)
        if magic != _MAGIC or version not in _VERSIONS:
            raise UserError(
                f"{path} is not a GGUF file of version 2 or 3: it begins with {data[:8]!r}"
            )
        return _Reader(data).header()


class _Reader:
    """Reads values one after the other; raises struct.error, ValueError or KeyError where the data
    are damaged or end before.
    """

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        # After the mark and the version.
        self._position = 8
        self._of_type: dict[int, Callable[[], Any]] = {_STRING: self._text, _ARRAY: self._array}
        for number, dtype in _NUMBERS.items():
            self._of_type[number] = functools.partial(self._number, dtype)

    def header(self) -> Header:
        num_tensors = self._number("<u8")
        num_keys = self._number("<u8")
        metadata = {}
        for _ in range(num_keys):
            key = self._text()
            metadata[key] = self._of_type[self._number("<u4")]()
        entries = {}
        for _ in range(num_tensors):
            name = self._text()
            dimensions = self._number("<u4")
            # GGUF lists the fastest axis first.
            shape = tuple(self._number("<u8") for _ in range(dimensions))[::-1]
            entries[name] = (shape, self._number("<u4"), self._number("<u8"))
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        # Tensors begin at the next multiple of the alignment after the header; their offsets count
        # from there.
        begin = -(-self._position // alignment) * alignment
        return Header(metadata, {name: _place(begin, *entry) for name, entry in entries.items()})

    def _number(self, dtype: str) -> Any:
        return self._numbers(dtype, 1)[0].item()

    def _numbers(self, dtype: str, count: int) -> np.ndarray:
        # A copy, since an array on the map would keep the file open.
        values = np.frombuffer(self._data, dtype, count, self._position).copy()
        self._position += values.nbytes
        return values

    def _text(self) -> str:
        # Of a large vocabulary this is called half a million times.
        (length,) = struct.unpack_from("<Q", self._data, self._position)
        start = self._position + 8
        self._position = start + length
        # Tokens may be parts of a character.
        return self._data[start : self._position].decode("utf-8", "surrogateescape")

    def _array(self) -> list[str] | np.ndarray:
        kind = self._number("<u4")
        count = self._number("<u8")
        if kind == _STRING:
            return [self._text() for _ in range(count)]
        return self._numbers(_NUMBERS[kind], count)


def _place(begin: int, shape: tuple[int, ...], kind: int, offset: int) -> TensorPlace:
    import gguf

    quantisation = gguf.GGMLQuantizationType(kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[quantisation]
    width = shape[-1] if shape else 1
    # A scalar is a row of one number. Quantised rows are whole blocks.
    return TensorPlace(shape or (1,), quantisation, begin + offset, width // block * block_bytes)


class GgufTensors:
    """The tensors of a GGUF file; the methods are those of `weights.Tensors`.

    Raises:
      UserError: the file has tensors of a type that is not read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        header = read(path)
        self._metadata = header.metadata
        self._architecture = header.metadata.get("general.architecture", "")
        self._tensors = header.tensors
        unread = {tensor.type.name for tensor in header.tensors.values()} - set(TYPES)
        if unread:
            raise UserError(
                f"{path} has tensors of type {', '.join(sorted(unread))}, which are not read: take a file of F16, Q8_0, "
                f"Q4_K_M or another of {', '.join(TYPES)}"
            )
        # By transformers' names; what has none there keeps llama.cpp's. The divisors of rotary
        # frequencies are part of the config.
        self._stored = {
            self._renamed(name): name for name in header.tensors if name != ROTARY_FACTORS
        }

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._stored)

    def name_of(self, name: str) -> str | None:
        """The name itself; None if the file has no such tensor."""
        return name if name in self._stored else None

    def find(self, name: str, dtype: Any = None) -> np.ndarray | None:
        """The tensor `name` as an array of `dtype` (None: float32); None if it is missing."""
        if name not in self._stored:
            return None
        stored = self._stored[name]
        if self._has_one_added(stored):
            # Rounded without the 1, beside which a smaller dtype keeps fewer digits of the weight.
            return self._in_order(stored, self._read(stored)).astype(dtype or np.float32)
        return self._in_order(stored, self._read(stored, dtype))

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of the tensor `name`, float32; KeyError if it is missing."""
        stored = self._stored[name]
        # The rows of a head are permuted as a whole: a part of them needs the others.
        if self._reordered(stored):
            return self._in_order(stored, self._read(stored))[start:stop]
        tensor = self._tensors[stored]
        values = self._unpacked(tensor, start, min(stop, tensor.rows))
        return self._in_order(stored, values.reshape(-1, *tensor.shape[1:]))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of the tensor that `find` reads; None if it is missing."""
        return self._tensors[self._stored[name]].shape if name in self._stored else None

    def dtype(self, name: str) -> str | None:
        """F32 for every tensor, since it is unpacked; None if it is missing."""
        return "F32" if name in self._stored else None

    def read_as_it_is(self, stored: str) -> np.ndarray:
        """The tensor by llama.cpp's name, float32, in the file's order."""
        return self._read(stored)

    def _read(self, stored: str, dtype: Any = None) -> np.ndarray:
        """The tensor in the file's order, unpacked a part at a time, so that all of it is never
        there in float32 beside `dtype`.
        """
        tensor = self._tensors[stored]
        array = np.empty((tensor.rows, tensor.shape[-1]), dtype or np.float32)
        step = max(1, NUMBERS_AT_ONCE // tensor.shape[-1])
        for start in range(0, tensor.rows, step):
            stop = min(start + step, tensor.rows)
            array[start:stop] = self._unpacked(tensor, start, stop)
        return array.reshape(tensor.shape)

    def _unpacked(self, tensor: TensorPlace, start: int, stop: int) -> np.ndarray:
        """Rows float32 [stop - start, last axis]."""
        packed = np.fromfile(
            self._path,
            np.uint8,
            (stop - start) * tensor.row_bytes,
            offset=tensor.start + start * tensor.row_bytes,
        )
        import gguf

        numbers: np.ndarray = gguf.dequantize(
            packed.reshape(stop - start, tensor.row_bytes), tensor.type
        )
        return numbers.reshape(stop - start, tensor.shape[-1])

    def _renamed(self, stored: str) -> str:
        if stored in _OUTSIDE:
            return _OUTSIDE[stored]
        block = _BLOCK.fullmatch(stored)
        names = _IN_BLOCK.get(self._architecture, {})
        if block is None or block[2] not in names:
            return stored
        return f"model.layers.{block[1]}.{names[block[2]]}.{block[3]}"

    def _has_one_added(self, stored: str) -> bool:
        return self._architecture in _WITH_ONE and stored.endswith("norm.weight")

    def _reordered(self, stored: str) -> str | None:
        """The key of the number of heads by which the rows of a tensor are reordered; None: they
        are in transformers' order.
        """
        block = _BLOCK.fullmatch(stored)
        if self._architecture != "llama" or block is None or block[2] not in _REORDERED:
            return None
        return f"llama.{_REORDERED[block[2]]}"

    def _in_order(self, stored: str, array: np.ndarray) -> np.ndarray:
        """A tensor as transformers has it: Gemma's norms without 1, and the rows of Llama's queries
        and keys in another order.

        llama.cpp turns pairs of neighbours (0 with 1, 2 with 3), transformers the first half of a
        head with the second.
        """
        if self._has_one_added(stored):
            return array - np.ones((), array.dtype)
        key = self._reordered(stored)
        if key is None:
            return array
        heads = self._metadata.get(key, self._metadata["llama.attention.head_count"])
        # [heads, half, 2] of neighbours becomes [heads, 2, half] of halves.
        half = array.shape[0] // heads // 2
        return array.reshape(heads, half, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
