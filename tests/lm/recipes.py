"""Tiny checkpoints of every architecture, made from nothing but names, so that none has to be kept.

transformers' own classes, with the same configs and weights, gave the arrays in references.npz
(make_references.py).
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

VOCAB = 61
CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "t5_gated": "T5ForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_windows": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "roberta": "RobertaModel",
}
T5: dict[str, Any] = {"vocab_size": VOCAB, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2}
T5 |= {"num_heads": 3, "num_decoder_layers": 2}
T5 |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
GPT2: dict[str, Any] = {
    "vocab_size": VOCAB,
    "n_positions": 48,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 4,
}
GPT2 |= {
    "bos_token_id": 2,
    "eos_token_id": 2,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.2,
    "resid_pdrop": 0.3,
}
COMMON: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24}
COMMON |= {"num_hidden_layers": 2, "num_attention_heads": 4, "eos_token_id": 2}
LLAMA = {**COMMON, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6}
LLAMA |= {"bos_token_id": 1, "attention_dropout": 0.2}
STRETCHED = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0}
STRETCHED |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
# Windows are shorter than the rows, and local and global layers have other wavelengths.
WINDOWS: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 3}
WINDOWS["layer_types"] = ["full_attention", "sliding_attention"]
GEMMA3 = {**LLAMA, "num_hidden_layers": 3, "head_dim": 6, "pad_token_id": 0, "sliding_window": 4}
GEMMA3 |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 5}
GEMMA3 |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
GEMMA3["rope_parameters"] = {
    "full_attention": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
ROBERTA = {**COMMON, "max_position_embeddings": 40, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
ROBERTA |= {"pad_token_id": 1, "bos_token_id": 0}
ROBERTA |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
CONFIGS: dict[str, dict[str, Any]] = {
    "t5": {**T5, "model_type": "t5", "feed_forward_proj": "relu", "tie_word_embeddings": True},
    "t5_gated": {
        **T5,
        "model_type": "t5",
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    },
    "gpt2": {**GPT2, "model_type": "gpt2"},
    "llama": {
        **LLAMA,
        "model_type": "llama",
        "rope_parameters": STRETCHED,
        "tie_word_embeddings": False,
    },
    "qwen2": {
        **LLAMA,
        "model_type": "qwen2",
        "rope_parameters": PLAIN,
        "tie_word_embeddings": True,
    },
    "qwen2_windows": {
        **LLAMA,
        **WINDOWS,
        "model_type": "qwen2",
        "rope_parameters": PLAIN,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        **LLAMA,
        "model_type": "qwen3",
        "head_dim": 6,
        "rope_parameters": PLAIN,
        "tie_word_embeddings": False,
    },
    "gemma3": {**GEMMA3, "model_type": "gemma3_text", "tie_word_embeddings": True},
    "roberta": {**ROBERTA, "model_type": "roberta"},
}
SIDES = ("none", "left", "right")
LENGTH = 10
BATCH = 3
MAX_NEW_TOKENS = 9
BEAMS = 3
DECODER_LENGTH = 5


def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weights of a tensor by its name: norms near one, all else small."""
    draws = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if "norm" in name.lower() or ".ln_" in name:
        return (draws * 0.1 + (0.0 if name.endswith("bias") else 1.0)).astype(np.float32)
    return (draws * 0.25).astype(np.float32)


def tokens() -> np.ndarray:
    """int64 [BATCH, LENGTH], no special tokens."""
    return np.random.default_rng(5).integers(3, VOCAB, (BATCH, LENGTH))


def mask(side: str) -> np.ndarray:
    """bool [BATCH, LENGTH], False for padding on a side."""
    valid = np.ones((BATCH, LENGTH), bool)
    if side == "left":
        valid[1, :4] = valid[2, :1] = False
    if side == "right":
        valid[1, -4:] = valid[2, -1:] = False
    return valid


def pattern(size: int, rate: float) -> np.ndarray:
    """Stands in for dropout on an axis of `size`: draws cannot be compared, where they are made and
    at which rate can.
    """
    return (1 + rate * np.cos(np.arange(size))).astype(np.float32)
