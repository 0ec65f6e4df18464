"""Reads the tensors of a GGUF file under transformers' names, in float32 or another dtype, a part
of the rows at a time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.lm.gguf import files
from motif_jax.lm.gguf.files import TensorPlace

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


class GgufTensors:
    """The tensors of a GGUF file; the methods are those of `checkpoint_files.Tensors`.

    Raises:
      UserError: the file cannot be read, or has tensors of a type that is not read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        header = files.read(path)
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
        if packed.size != (stop - start) * tensor.row_bytes:
            raise UserError(f"{self._path} is cut off: it was longer when it was opened")
        gguf = files.package(self._path)
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
