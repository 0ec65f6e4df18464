"""The content of a checkpoint's config.json, as transformers reads it; `config.read` reads it
back.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.lm import token_ids
from motif_jax.lm.config import LAYOUTS, ModelConfig, parse
from motif_jax.lm.layer_positions import GLOBAL, LOCAL, SCALINGS, Rotary

_CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "roberta": "RobertaModel",
}


def to_values(config: ModelConfig) -> dict[str, Any]:
    """The entries of config.json for a model.

    Raises:
      UserError: config.json of this architecture cannot express the model; the message names the
          field.
    """
    writers = {
        "t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "qwen3": _llama, "gemma3_text": _gemma3, "roberta": _roberta,
    }  # fmt: skip
    values = {
        "model_type": config.architecture,
        "architectures": [_CLASSES[config.architecture]],
        **{
            name: attrgetter(field)(config)
            for field, (name, *_) in LAYOUTS[config.architecture].items()
        },
        "pad_token_id": config.pad_id,
        "decoder_start_token_id" if config.encoder_layers else "bos_token_id": config.start_id,
        **token_ids.to_values(config.end_ids),
        **writers[config.architecture](config),
    }
    values = {
        key: value for key, value in values.items() if value is not None or key == token_ids.END
    }
    # What the reader makes of the entries must be the model: some fields have no entry in some
    # architectures.
    read_back = dataclasses.asdict(parse(values))
    for key, value in dataclasses.asdict(config).items():
        if value != read_back[key]:
            raise UserError(
                f"config.json of a {config.architecture} model cannot hold {key}={value}: it would be read as {read_back[key]}"
            )
    return values


def _t5(config: ModelConfig) -> dict[str, Any]:
    # The reverse of `config._t5`: transformers' 'gated-gelu' is the approximation by tanh.
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
    # Qwen2 has these biases always, and no entry for them.
    if config.architecture in ("llama", "qwen3"):
        values["attention_bias"] = config.attention_bias
    if config.architecture == "llama":
        values["mlp_bias"] = config.feed_forward_bias
    if config.window is not None:
        values |= {
            "use_sliding_window": True,
            "sliding_window": config.window,
            "layer_types": _layer_types(config),
        }
    if rotary.kind != "default":  # where transformers before version 5 looks for it
        values["rope_scaling"] = _rotary(rotary)
    return values


def _gemma3(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or Rotary()
    local_rotary = config.local_rotary or rotary
    values: dict[str, Any] = {
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "attention_bias": config.attention_bias,
        "sliding_window": config.window,
        "layer_types": _layer_types(config),
        "rope_parameters": {GLOBAL: _rotary(rotary), LOCAL: _rotary(local_rotary)},
        # Where transformers before version 5 looks for them.
        "rope_theta": rotary.theta,
        "rope_local_base_freq": local_rotary.theta,
    }
    if rotary.kind != "default":
        values["rope_scaling"] = _rotary(rotary)
    if config.activation == "gelu_new":
        values["hidden_activation"] = "gelu_pytorch_tanh"  # its name in Gemma's files
    return values


def _layer_types(config: ModelConfig) -> list[str]:
    if not config.local_layers:
        return [GLOBAL] * config.layers
    return [LOCAL if is_local else GLOBAL for is_local in config.local_layers]


def _rotary(rotary: Rotary) -> dict[str, Any]:
    theta, kind, *parameters = dataclasses.astuple(rotary)
    return {"rope_type": kind, "rope_theta": theta, **dict(zip(SCALINGS[kind], parameters))}


def _roberta(config: ModelConfig) -> dict[str, Any]:
    rows = (config.max_length or 0) + config.pad_id + 1
    return {"max_position_embeddings": rows, "type_vocab_size": 1}
