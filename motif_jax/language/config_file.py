"""Writes a checkpoint's config.json as transformers reads it; `config.read` reads it back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from motif_jax.language.config import FILE, ModelConfig, Rotary, parse
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json

_CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "roberta": "RobertaModel",
}


def write(folder: str | Path, config: ModelConfig) -> None:
    """Writes config.json into a folder.

    Raises:
      UserError: see `to_values`.
    """
    atomic_write_json(Path(folder) / FILE, to_values(config))


def to_values(config: ModelConfig) -> dict[str, Any]:
    """The entries of config.json for a model.

    Raises:
      UserError: config.json of this architecture cannot express the model; the message names the field.
    """
    writers = {"t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "roberta": _roberta}
    values = {
        "model_type": config.architecture,
        "architectures": [_CLASSES[config.architecture]],
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tied,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.end_ids[0] if len(config.end_ids) == 1 else list(config.end_ids),
        **writers[config.architecture](config),
    }
    values = {key: value for key, value in values.items() if value is not None}
    here, there = dataclasses.asdict(config), dataclasses.asdict(parse(values))
    for key, value in here.items():
        if value != there[key]:
            raise UserError(
                f"config.json of a {config.architecture} model cannot hold {key}={value}: it would be read as {there[key]}"
            )
    return values


def _t5(config: ModelConfig) -> dict[str, Any]:
    name = "gelu" if config.gated and config.activation == "gelu_new" else config.activation
    return {
        "is_encoder_decoder": True,
        "d_model": config.width,
        "d_kv": config.head_width,
        "d_ff": config.feed_forward,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.layers,
        "num_heads": config.heads,
        "feed_forward_proj": f"gated-{name}" if config.gated else name,
        "scale_decoder_outputs": config.scaled_head,
        "layer_norm_epsilon": config.norm_epsilon,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "dropout_rate": config.dropout.outputs,
        "initializer_factor": config.initializer,
        "decoder_start_token_id": config.start_id,
    }


def _gpt2(config: ModelConfig) -> dict[str, Any]:
    dropout = config.dropout
    return {
        "n_positions": config.max_length,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.feed_forward,
        "activation_function": config.activation,
        "layer_norm_epsilon": config.norm_epsilon,
        "embd_pdrop": dropout.embeddings,
        "attn_pdrop": dropout.attention,
        "resid_pdrop": dropout.outputs,
        "initializer_range": config.initializer,
        "bos_token_id": config.start_id,
    }


def _llama(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or Rotary()
    values = {
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "hidden_act": config.activation,
        "max_position_embeddings": config.max_length,
        "rms_norm_eps": config.norm_epsilon,
        "attention_dropout": config.dropout.attention,
        "initializer_range": config.initializer,
        "bos_token_id": config.start_id,
        "rope_theta": rotary.theta,
        "rope_parameters": _rotary(rotary),
    }
    if config.architecture == "llama":
        values |= {"attention_bias": config.attention_bias, "mlp_bias": config.feed_forward_bias}
    if rotary.kind != "default":  # where transformers before version 5 looks for it
        values["rope_scaling"] = _rotary(rotary)
    return values


def _rotary(rotary: Rotary) -> dict[str, Any]:
    values: dict[str, Any] = {"rope_type": rotary.kind, "rope_theta": rotary.theta}
    if rotary.kind != "default":
        values["factor"] = rotary.factor
    if rotary.kind == "llama3":
        values["low_freq_factor"] = rotary.low_frequency_factor
        values["high_freq_factor"] = rotary.high_frequency_factor
        values["original_max_position_embeddings"] = rotary.original_length
    return values


def _roberta(config: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "hidden_act": config.activation,
        "max_position_embeddings": (config.max_length or 0) + config.pad_id + 1,
        "type_vocab_size": 1,
        "layer_norm_eps": config.norm_epsilon,
        "hidden_dropout_prob": config.dropout.outputs,
        "attention_probs_dropout_prob": config.dropout.attention,
        "initializer_range": config.initializer,
        "bos_token_id": config.start_id,
    }
