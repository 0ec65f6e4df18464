"""Checks the entries of a checkpoint's config.json before they are used: their JSON types, and
whether the weights are quantised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.lm.layer_positions import GLOBAL, LOCAL

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
    "d_model",
    "num_layers",
    "num_decoder_layers",
    "num_heads",
    "d_kv",
    "d_ff",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "n_embd",
    "n_layer",
    "n_head",
    "n_positions",
    "n_inner",
    "sliding_window",
    "sliding_window_pattern",
)
_TOKENS = ("pad_token_id", "bos_token_id", "decoder_start_token_id")
_NUMBERS = (
    "initializer_range",
    "initializer_factor",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "attention_dropout",
    "dropout_rate",
    "embd_pdrop",
    "attn_pdrop",
    "resid_pdrop",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "rope_theta",
    "partial_rotary_factor",
    "rope_local_base_freq",
    "final_logit_softcapping",
    "attn_logit_softcapping",
)
_FLAGS = (
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "use_sliding_window",
    "scale_attn_weights",
    "scale_attn_by_inverse_layer_idx",
    "scale_decoder_outputs",
    "use_bidirectional_attention",
)
_TEXTS = ("hidden_act", "hidden_activation", "activation_function", "feed_forward_proj")
_OBJECTS = ("rope_parameters", "rope_scaling")
# Of `rope_parameters` and `rope_scaling`.
_ROTARY_NUMBERS = (
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "partial_rotary_factor",
)
# Entries whose null says that there is none, and not that the default counts.
_NULL_MEANS_NONE = ("sliding_window", "eos_token_id")
# Entries that say how a checkpoint's weights were quantised: transformers', older
# compressed-tensors', and MLX's.
_QUANTISED = ("quantization_config", "compression_config", "quantization")
# What one can do instead of loading quantised weights.
UNQUANTISED = (
    "take the model's checkpoint in float32, float16 or bfloat16 (or save it from transformers with "
    "model.dequantize().save_pretrained(FOLDER)); config.lora.base=int8 or nf4 quantises it here"
)


def is_whole(value: Any) -> bool:
    """Whether a JSON value is a whole number; true and false are none."""
    # By type: isinstance takes true and false for whole numbers.
    return type(value) is int


def is_size(value: Any) -> bool:
    """Whether a JSON value is a whole number above 0."""
    return is_whole(value) and value > 0


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; true and false are none."""
    return type(value) in (int, float) and math.isfinite(value)


def is_end(value: Any) -> bool:
    """Whether a JSON value is the number of a token, or a list of at least one."""
    if isinstance(value, list):
        return bool(value) and all(map(is_whole, value))
    return is_whole(value)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_SIZES, (is_size, "a whole number above 0")),
    **dict.fromkeys(_TOKENS, (is_whole, "a token's number")),
    **dict.fromkeys(_NUMBERS, (is_number, "a number")),
    **dict.fromkeys(_FLAGS, (lambda value: isinstance(value, bool), "true or false")),
    **dict.fromkeys(_TEXTS, (lambda value: isinstance(value, str), "a text")),
    **dict.fromkeys(_OBJECTS, (lambda value: isinstance(value, Mapping), "an object")),
    "max_window_layers": (is_whole, "a whole number"),
    "query_pre_attn_scalar": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "layer_types": (lambda value: isinstance(value, list), "a list"),
    "eos_token_id": (is_end, "a token's number, or a list of them"),
}
_ROTARY_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        _ROTARY_NUMBERS, (lambda value: is_number(value) and value > 0, "a number above 0")
    ),
    "original_max_position_embeddings": (is_size, "a whole number above 0"),
    "rope_type": (lambda value: isinstance(value, str), "a text"),
    "type": (lambda value: isinstance(value, str), "a text"),
}


def checked(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The entries without those that are null, which count as missing but for `_NULL_MEANS_NONE`.

    Raises:
      UserError: an entry that is read has another JSON type than it must have, or the weights are
        quantised. The message begins with `source` and names the entry.
    """
    present = _of_types(values, _KINDS, source, "")
    # Put back after the nulls were left out, so that the defaults do not count for them.
    present |= {name: None for name in _NULL_MEANS_NONE if name in values and values[name] is None}
    for name in _QUANTISED:
        if present.get(name):
            raise UserError(
                f"{source}: {name} says that the weights are quantised ({_method(present[name])}), which is not read: {UNQUANTISED}"
            )
    for name in _OBJECTS:
        if name in present:
            present[name] = _of_types(present[name], _ROTARY_KINDS, source, f"{name}.")
            # Gemma 3 has an object for each kind of layer in `rope_parameters`.
            for layers in (GLOBAL, LOCAL):
                if layers in present[name]:
                    of_layers = present[name][layers]
                    if not isinstance(of_layers, Mapping):
                        raise UserError(
                            f"{source}: {name}.{layers} is {of_layers!r}, must be an object"
                        )
                    part = _of_types(of_layers, _ROTARY_KINDS, source, f"{name}.{layers}.")
                    present[name] = {**present[name], layers: part}
    return present


def _of_types(
    values: Mapping[str, Any],
    kinds: Mapping[str, tuple[Callable[[Any], bool], str]],
    source: str,
    prefix: str,
) -> dict[str, Any]:
    present = {name: value for name, value in values.items() if value is not None}
    for name, (fits, description) in kinds.items():
        if name in present and not fits(present[name]):
            raise UserError(f"{source}: {prefix}{name} is {present[name]!r}, must be {description}")
    return present


def _method(quantised: Any) -> str:
    """The quantisation in a few words, such as 'bitsandbytes, load_in_8bit' or 'gptq, bits=4'."""
    if not isinstance(quantised, Mapping):
        return repr(quantised)
    words = [str(quantised.get("quant_method", quantised.get("format", "unknown method")))]
    words += [name for name in ("load_in_8bit", "load_in_4bit") if quantised.get(name) is True]
    words += [
        f"{name}={quantised[name]}" for name in ("bits", "fmt", "quant_type") if name in quantised
    ]
    return ", ".join(words)
