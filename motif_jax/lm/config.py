"""The architecture of a language model, read from a checkpoint's config.json.

Architectures are transformers' model types t5, gpt2, llama, qwen2, qwen3, gemma3_text and roberta.
A config with an unsupported feature (YaRN, soft caps of logits) is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import parse_json, regular_file
from motif_jax.lm import generation_config, token_ids
from motif_jax.lm.layer_positions import Rotary, read_gemma_rotary, read_rotary, read_windows

FILE = "config.json"
# Entries that say how a checkpoint's weights were quantised: transformers', older
# compressed-tensors', and MLX's.
_QUANTISED = ("quantization_config", "compression_config", "quantization")
# Entries whose null says that there is none, and not that the default counts.
_NULL_MEANS_NONE = ("sliding_window", "eos_token_id")
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")
_ACTIVATION_NAMES = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}


@dataclasses.dataclass(frozen=True)
class Dropout:
    """Dropout rates in [0, 1) (Srivastava et al. 2014).

    Attributes:
      embeddings: of a stack's input.
      attention: of the attention weights.
      outputs: of the residual branches.
      inner: inside a feed-forward layer (T5).
      final: of the states after the last norm (T5).
    """

    embeddings: float = 0.0
    attention: float = 0.0
    outputs: float = 0.0
    inner: float = 0.0
    final: float = 0.0


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """One language model.

    Attributes:
      layers: of the decoder, or of the encoder where there is no decoder.
      feed_forward: width inside the feed-forward layers; `gated`: a second projection multiplies
          the activation.
      max_length: most tokens of a text, prompt and answer together; None: no limit (T5).
      encoder_layers: of the encoder before a decoder (T5), 0 without one.
      tied: the output head is the embedding table.
      scaled_head: states are divided by the root of their width before the head (T5 v1.0).
      attention_bias, output_bias, feed_forward_bias: which projections have a bias (Llama and
          Qwen2).
      relative_buckets, relative_distance: of T5's relative positions.
      query_key_norm: each head's queries and keys have a norm (Qwen3, Gemma 3).
      output_norms: attention and feed-forward have a norm after them, too (Gemma 3).
      norm_offset: is added to the weights of norms (Gemma 3: 1).
      scaled_embedding: embeddings are multiplied by the root of their width (Gemma).
      query_scalar: attention scores are divided by its root; None: by the root of `head_width`.
      window: of the local layers: a token sees so many tokens, itself among them; None: every layer
          sees all.
      local_layers: for each layer whether it has the window; () without one.
      local_rotary: rotary positions of the local layers; None: those of the others.
      initializer: standard deviation of fresh weights; for T5 a factor of the standard deviation
          that follows from the shapes.
      start_id: a decoder's first token.
    """

    architecture: str
    vocab_size: int
    width: int
    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    feed_forward: int
    activation: str
    gated: bool = False
    max_length: int | None = None
    encoder_layers: int = 0
    tied: bool = True
    scaled_head: bool = False
    norm_epsilon: float = 1e-5
    attention_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    query_key_norm: bool = False
    output_norms: bool = False
    norm_offset: float = 0.0
    scaled_embedding: bool = False
    query_scalar: float | None = None
    window: int | None = None
    local_layers: tuple[bool, ...] = ()
    rotary: Rotary | None = None
    local_rotary: Rotary | None = None
    relative_buckets: int = 32
    relative_distance: int = 128
    dropout: Dropout = Dropout()
    initializer: float = 0.02
    pad_id: int = 0
    start_id: int = 0
    end_ids: tuple[int, ...] = (1,)

    @property
    def has_decoder(self) -> bool:
        return self.architecture != "roberta"


_COMMON: dict[str, tuple[Any, ...]] = {
    "vocab_size": ("vocab_size",),
    "width": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "feed_forward": ("intermediate_size",),
    "tied": ("tie_word_embeddings", True),
    "initializer": ("initializer_range", 0.02),
}
_LLAMA = {
    **_COMMON,
    "activation": ("hidden_act", "silu"),
    "max_length": ("max_position_embeddings", None),
    "tied": ("tie_word_embeddings", False),
    "norm_epsilon": ("rms_norm_eps", 1e-6),
    "dropout.attention": ("attention_dropout", 0.0),
}
# Entries of config.json that hold one field each: name, and the default if it may be missing, by
# architecture and field.
LAYOUTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "t5": {
        "vocab_size": ("vocab_size",),
        "width": ("d_model",),
        "encoder_layers": ("num_layers",),
        "heads": ("num_heads",),
        "head_width": ("d_kv",),
        "feed_forward": ("d_ff",),
        "tied": ("tie_word_embeddings", True),
        "norm_epsilon": ("layer_norm_epsilon", 1e-6),
        "relative_buckets": ("relative_attention_num_buckets", 32),
        "relative_distance": ("relative_attention_max_distance", 128),
        "initializer": ("initializer_factor", 1.0),
        **{f"dropout.{field.name}": ("dropout_rate", 0.1) for field in dataclasses.fields(Dropout)},
    },
    "gpt2": {
        "vocab_size": ("vocab_size",),
        "width": ("n_embd",),
        "layers": ("n_layer",),
        "heads": ("n_head",),
        "activation": ("activation_function", "gelu_new"),
        "max_length": ("n_positions",),
        "tied": ("tie_word_embeddings", True),
        "norm_epsilon": ("layer_norm_epsilon", 1e-5),
        "dropout.embeddings": ("embd_pdrop", 0.1),
        "dropout.attention": ("attn_pdrop", 0.1),
        "dropout.outputs": ("resid_pdrop", 0.1),
        "initializer": ("initializer_range", 0.02),
    },
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma3_text": {
        **_LLAMA,
        "activation": ("hidden_activation", "gelu_pytorch_tanh"),
        "tied": ("tie_word_embeddings", True),
        "query_scalar": ("query_pre_attn_scalar", 256),
    },
    "roberta": {
        **_COMMON,
        "activation": ("hidden_act", "gelu"),
        "norm_epsilon": ("layer_norm_eps", 1e-5),
        "dropout.embeddings": ("hidden_dropout_prob", 0.1),
        "dropout.attention": ("attention_probs_dropout_prob", 0.1),
        "dropout.outputs": ("hidden_dropout_prob", 0.1),
    },
}


def require_decoder(config: ModelConfig, does: str) -> None:
    """Raises UserError for a model without a decoder; `does` names the purpose."""
    if not config.has_decoder:
        raise UserError(f"a {config.architecture} model {does} no text: it has no decoder")


def read(folder: str | Path) -> ModelConfig:
    """Reads the config.json of a checkpoint folder, and its end tokens from generation_config.json
    where it has one.

    Raises:
      UserError: there is no config.json, the architecture or a feature is unknown, or the weights
        are quantised.
      KeyError: an entry is missing that has no default.
    """
    path = Path(folder) / FILE
    try:
        with open(path, "rb", opener=regular_file) as file:
            values = parse_json(file.read(), dict)
    except FileNotFoundError:
        raise UserError(
            f"{folder} is not a language model: it has no {FILE}; give the folder of a checkpoint"
        ) from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    # As in transformers' `generate`, generation_config.json replaces the tokens that end and start
    # a text.
    return parse({**values, **generation_config.special_tokens(folder)}, str(path))


def parse(values: Mapping[str, Any], source: str = "the config") -> ModelConfig:
    """Turns a config.json's content into a `ModelConfig`; errors, as of `read`, name `source`."""
    kind = values.get("model_type")
    readers = {
        "t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "qwen3": _qwen3, "gemma3_text": _gemma3, "roberta": _roberta,
    }  # fmt: skip
    if kind not in readers:
        raise UserError(f"{source}: model_type {kind!r} is not one of {', '.join(LAYOUTS)}")
    for name in _QUANTISED:
        if values.get(name):
            raise UserError(
                f"{source}: {name} says that the weights are quantised, which is not read: take the model's "
                "checkpoint in float32, float16 or bfloat16; config.lora.base=int8 or nf4 quantises it here"
            )
    values = _without_nulls(values)
    fields: dict[str, Any] = {
        field: values.get(name, *default) if default else values[name]
        for field, (name, *default) in LAYOUTS[kind].items()
    }
    rates = [field for field in fields if field.startswith("dropout.")]
    dropout = Dropout(**{field.removeprefix("dropout."): fields.pop(field) for field in rates})
    if "activation" in fields:
        fields["activation"] = _activation(fields["activation"], source)
    # What needs a formula comes last and replaces what one entry said.
    fields |= {"key_value_heads": fields["heads"], **readers[kind](values, source)}
    config = ModelConfig(architecture=kind, dropout=dropout, **fields)
    begins = "decoder_start_token_id" if config.encoder_layers else "bos_token_id"
    token_ids.require(config.start_id, config.end_ids, config.vocab_size, begins, source)
    return dataclasses.replace(
        config, pad_id=token_ids.pad_within(config.pad_id, config.vocab_size)
    )


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries, also of objects among them, without those whose null counts as a missing
    entry.
    """
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None or name in _NULL_MEANS_NONE
    }


def _activation(name: str, source: str) -> str:
    name = _ACTIVATION_NAMES.get(name, name)
    if name not in ACTIVATIONS:
        raise UserError(f"{source}: activation {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return name


def _t5(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    projection = values.get("feed_forward_proj", "relu")
    gated = projection.startswith("gated-")
    name = projection.removeprefix("gated-")
    tokens = token_ids.read(values, 1, 0)
    return {
        **tokens,
        "start_id": values.get(
            "decoder_start_token_id", token_ids.pad_within(tokens["pad_id"], values["vocab_size"])
        ),
        "layers": values.get("num_decoder_layers") or values["num_layers"],
        # transformers reads 'gated-gelu' as the approximation by tanh that T5 v1.1 was trained
        # with.
        "activation": "gelu_new" if gated and name == "gelu" else _activation(name, source),
        "gated": gated,
        # Before transformers 5 one key meant both; since then T5 is tied unless its file has a head
        # of its own.
        "scaled_head": values.get("scale_decoder_outputs", values.get("tie_word_embeddings", True)),
    }


def _gpt2(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    if values.get("scale_attn_by_inverse_layer_idx") or not values.get("scale_attn_weights", True):
        raise UserError(
            f"{source}: attention must be scaled by the width of a head, other scales are not supported"
        )
    return {
        **token_ids.read(values, values["vocab_size"] - 1),
        "head_width": values["n_embd"] // values["n_head"],
        "feed_forward": values.get("n_inner") or 4 * values["n_embd"],
    }


def _llama(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    heads = values["num_attention_heads"]
    # Qwen2's config has no entry for it.
    is_qwen2 = values["model_type"] == "qwen2"
    bias = is_qwen2 or values.get("attention_bias", False)
    return {
        **token_ids.read(values, 2, start=1),
        **read_windows(values, source),
        "key_value_heads": values.get("num_key_value_heads") or heads,
        "head_width": values.get("head_dim") or values["hidden_size"] // heads,
        "gated": True,
        "attention_bias": bias,
        "output_bias": bias and not is_qwen2,
        "feed_forward_bias": values.get("mlp_bias", False),
        "rotary": read_rotary(values, source),
    }


def _qwen3(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    return {
        **_llama(values, source),
        "head_width": values.get("head_dim", 128),
        "query_key_norm": True,
    }


def _gemma3(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    for name in (
        "final_logit_softcapping",
        "attn_logit_softcapping",
        "use_bidirectional_attention",
    ):
        if values.get(name):
            raise UserError(f"{source}: {name} is {values[name]}, which is not supported")
    rotary, local_rotary = read_gemma_rotary(values, source)
    windows = read_windows(values, source)
    bias = values.get("attention_bias", False)
    return {
        **token_ids.read(values, 1, 0, 2),
        **windows,
        "key_value_heads": values.get("num_key_value_heads", 4),
        "head_width": values.get("head_dim", 256),
        "gated": True,
        "attention_bias": bias,
        "output_bias": bias,
        "query_key_norm": True,
        "output_norms": True,
        "norm_offset": 1.0,
        "scaled_embedding": True,
        "rotary": rotary,
        "local_rotary": local_rotary if windows else None,
    }


def _roberta(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    tokens = token_ids.read(values, 2, 1, 0)
    return {
        **tokens,
        "head_width": values["hidden_size"] // values["num_attention_heads"],
        # The first positions of the table are the padding's and those before it.
        "max_length": values["max_position_embeddings"] - tokens["pad_id"] - 1,
    }
