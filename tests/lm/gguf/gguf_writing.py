"""Writes made-up models as GGUF files, as llama.cpp's converter does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from motif_jax.lm.weights import SINGLE

gguf = pytest.importorskip(
    "gguf", reason="the package gguf is not there: pip install 'motif-jax[gguf]'"
)

LLAMA = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
QUERY_KEY_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
GEMMA = {
    **LLAMA,
    **QUERY_KEY_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
IN_BLOCK = {"llama": LLAMA, "qwen2": LLAMA, "qwen3": {**LLAMA, **QUERY_KEY_NORMS}, "gemma3": GEMMA}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
CONTROL = 3
USER_DEFINED = 4
NORMAL = 1
BYTE = 6


def stored_name(architecture: str, name: str) -> str:
    """llama.cpp's name of a tensor."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    part, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{IN_BLOCK[architecture][part]}.{kind}"


def neighbours(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head's two halves in turns: 0, n / 2, 1, n / 2 + 1, ..., as llama.cpp turns Llama's
    queries and keys.
    """
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def write(
    folder: Path,
    path: Path,
    more: dict[str, Any] | None = None,
    dtype: str = "F32",
    more_tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """Writes the checkpoint in `folder` as a GGUF file; `more` are further metadata, `dtype` is
    that of the matrices, and `more_tensors` have llama.cpp's names.
    """
    values = json.loads((folder / "config.json").read_text())
    architecture = values["model_type"].removesuffix("_text")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(values["num_hidden_layers"])
    writer.add_context_length(values["max_position_embeddings"])
    writer.add_embedding_length(values["hidden_size"])
    writer.add_feed_forward_length(values["intermediate_size"])
    writer.add_head_count(values["num_attention_heads"])
    writer.add_head_count_kv(values["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(values["rms_norm_eps"])
    if "head_dim" in values:
        writer.add_key_length(values["head_dim"])
        writer.add_value_length(values["head_dim"])
    if architecture == "gemma3":
        writer.add_sliding_window(values["sliding_window"])
        writer.add_rope_freq_base(values["rope_theta"])
    elif "rope_parameters" in values:
        writer.add_rope_freq_base(values["rope_parameters"]["rope_theta"])
    writer.add_eos_token_id(values["eos_token_id"])
    writer.add_bos_token_id(values["bos_token_id"])
    if (folder / "tokenizer.json").exists():
        add_byte_pairs(writer, Tokenizer.from_file(str(folder / "tokenizer.json")))
    described = folder / "tokenizer_config.json"
    if described.exists() and "chat_template" in json.loads(described.read_text()):
        writer.add_chat_template(json.loads(described.read_text())["chat_template"])
    for key, value in (more or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_uint32(key, value)
    for name, tensor in load_file(folder / SINGLE).items():
        if architecture == "llama" and ".q_proj." in name:
            tensor = neighbours(tensor, values["num_attention_heads"])
        if architecture == "llama" and ".k_proj." in name:
            tensor = neighbours(tensor, values["num_key_value_heads"])
        if architecture == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor + 1
        add_tensor(
            writer, stored_name(architecture, name), tensor, dtype if tensor.ndim > 1 else "F32"
        )
    for name, tensor in (more_tensors or {}).items():
        add_tensor(writer, name, tensor, "F32")
    return finished(writer, path)


def add_tensor(writer: Any, name: str, tensor: np.ndarray, dtype: str) -> None:
    kind = gguf.GGMLQuantizationType[dtype]
    packed = gguf.quantize(np.ascontiguousarray(tensor), kind)
    writer.add_tensor(name, packed, raw_dtype=kind)


def add_byte_pairs(writer: Any, backend: Tokenizer, words: str | None = "gpt-2") -> None:
    """Adds a tokenizer of byte pairs of bytes; `words` None: without the name of how words are cut,
    as old files.
    """
    values = json.loads(backend.to_str())
    vocabulary = backend.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {token["content"] for token in values["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    if words is not None:
        writer.add_tokenizer_pre(words)
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in values["model"]["merges"]])


def finished(writer: Any, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def only_metadata(path: Path, architecture: str, metadata: dict[str, Any]) -> Path:
    """A file without tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        else:
            add = writer.add_string if isinstance(value, str) else writer.add_uint32
            add(key, value)
    return finished(writer, path)
