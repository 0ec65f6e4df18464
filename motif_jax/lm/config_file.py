"""The content of a checkpoint's config.json, as transformers reads it; `config.read` reads it back."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.lm.config import LAYOUTS, SCALINGS, ModelConfig, Rotary, parse

_CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "roberta": "RobertaModel",
}


def to_values(config: ModelConfig) -> dict[str, Any]:
    """The entries of config.json for a model.

    Raises:
      UserError: config.json of this architecture cannot express the model; the message names the field.
    """
    writers = {"t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "roberta": _roberta}
    values = {
        "model_type": config.architecture,
        "architectures": [_CLASSES[config.architecture]],
        **{name: attrgetter(field)(config) for field, (name, *_) in LAYOUTS[config.architecture].items()},
        "pad_token_id": config.pad_id,
        "decoder_start_token_id" if config.encoder_layers else "bos_token_id": config.start_id,
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
        "num_decoder_layers": config.layers,
        "feed_forward_proj": f"gated-{name}" if config.gated else name,
        "scale_decoder_outputs": config.scaled_head,
    }


def _gpt2(config: ModelConfig) -> dict[str, Any]:
    return {"n_inner": config.feed_forward}


def _llama(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or Rotary()
    values = {
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "rope_theta": rotary.theta,
        "rope_parameters": _rotary(rotary),
    }
    if config.architecture == "llama":
        values |= {"attention_bias": config.attention_bias, "mlp_bias": config.feed_forward_bias}
    if rotary.kind != "default":  # where transformers before version 5 looks for it
        values["rope_scaling"] = _rotary(rotary)
    return values


def _rotary(rotary: Rotary) -> dict[str, Any]:
    theta, kind, *parameters = dataclasses.astuple(rotary)
    return {"rope_type": kind, "rope_theta": theta, **dict(zip(SCALINGS[kind], parameters))}


def _roberta(config: ModelConfig) -> dict[str, Any]:
    rows = (config.max_length or 0) + config.pad_id + 1
    return {"max_position_embeddings": rows, "type_vocab_size": 1}
