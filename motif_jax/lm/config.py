"""The architecture of a language model: read from a checkpoint's config.json (`read`), and written
as transformers reads it (`to_values`).

Architectures are transformers' model types t5, gpt2, llama, qwen2, qwen3, gemma3_text and roberta.
A config with an unsupported feature (YaRN, soft caps of logits) is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from motif_jax.core.errors import UserError
from motif_jax.core.files import read_json

FILE = "config.json"
GENERATION_FILE = "generation_config.json"
_REMEDY = "give the folder of a checkpoint"
# Entries of generation_config.json that replace those of config.json, as in transformers'
# `generate`.
_GENERATION = ("eos_token_id", "decoder_start_token_id")
# null of it says that no token ends a text.
_END = "eos_token_id"
# Entries that say how a checkpoint's weights were quantised: transformers', older
# compressed-tensors', and MLX's.
_QUANTISED = ("quantization_config", "compression_config", "quantization")
# Entries whose null says that there is none, and not that the default counts.
_NULL_MEANS_NONE = ("sliding_window", _END)
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")
_ACTIVATION_NAMES = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}
# Parameters of the scalings of rotary positions, in the order of `Rotary`.
SCALINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
# transformers' names of layers that see all earlier tokens, and of those that see the last ones.
GLOBAL, LOCAL = "full_attention", "sliding_attention"
# Of Gemma 3: every sixth layer sees all tokens.
_GEMMA_PATTERN = 6
_GEMMA_WINDOW = 4096
_GEMMA_GLOBAL_THETA, _GEMMA_LOCAL_THETA = 1000000.0, 10000.0
# Of Qwen: the first layers see all tokens.
_QWEN_GLOBAL_LAYERS = 28
_QWEN_WINDOW = 4096


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
class Rotary:
    """Rotary positions (Su et al. 2021): `theta` is the base of the wavelengths, the other fields
    are parameters of the scaling `kind`.
    """

    theta: float = 10000.0
    kind: str = "default"  # or 'linear', or 'llama3' (Llama 3.1)
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_length: int = 8192


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
    values = read_json(path, _REMEDY)
    if (Path(folder) / GENERATION_FILE).exists():
        generation = read_json(Path(folder) / GENERATION_FILE, _REMEDY)
        values |= {
            name: generation[name] for name in _GENERATION if generation.get(name) is not None
        }
    return parse(values, str(path))


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
    for token in (config.start_id, *config.end_ids):
        if not 0 <= token < config.vocab_size:
            begins = "decoder_start_token_id" if config.encoder_layers else "bos_token_id"
            raise UserError(
                f"{source}: a token that begins or ends texts is {token}, which a model with {config.vocab_size} tokens does not have: "
                f"{begins} and eos_token_id must be below vocab_size"
            )
    return dataclasses.replace(config, pad_id=_pad_within(config.pad_id, config.vocab_size))


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
    tokens = _special_ids(values, 1, 0)
    return {
        **tokens,
        "start_id": values.get(
            "decoder_start_token_id", _pad_within(tokens["pad_id"], values["vocab_size"])
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
        **_special_ids(values, values["vocab_size"] - 1),
        "head_width": values["n_embd"] // values["n_head"],
        "feed_forward": values.get("n_inner") or 4 * values["n_embd"],
    }


def _llama(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    heads = values["num_attention_heads"]
    # Qwen2's config has no entry for it.
    is_qwen2 = values["model_type"] == "qwen2"
    bias = is_qwen2 or values.get("attention_bias", False)
    return {
        **_special_ids(values, 2, start=1),
        **_windows(values, source),
        "key_value_heads": values.get("num_key_value_heads") or heads,
        "head_width": values.get("head_dim") or values["hidden_size"] // heads,
        "gated": True,
        "attention_bias": bias,
        "output_bias": bias and not is_qwen2,
        "feed_forward_bias": values.get("mlp_bias", False),
        "rotary": _rotary(
            values.get("rope_parameters") or values.get("rope_scaling", {}),
            values.get("rope_theta", 10000.0),
            values.get("partial_rotary_factor", 1.0),
            source,
        ),
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
    # transformers has had rotary positions in `rope_parameters` since version 5; before in
    # `rope_theta`, `rope_scaling` and `rope_local_base_freq`.
    by_layer = values.get("rope_parameters", {})
    of_global = by_layer.get(GLOBAL) or values.get("rope_scaling", {})
    of_local = by_layer.get(LOCAL) or {}
    theta = values.get("rope_theta", _GEMMA_GLOBAL_THETA)
    local_theta = values.get("rope_local_base_freq", _GEMMA_LOCAL_THETA)
    rotary = _rotary(of_global, theta, 1.0, source)
    local_rotary = _rotary(of_local, local_theta, 1.0, source)
    windows = _windows(values, source)
    bias = values.get("attention_bias", False)
    return {
        **_special_ids(values, 1, 0, 2),
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
    tokens = _special_ids(values, 2, 1, 0)
    return {
        **tokens,
        "head_width": values["hidden_size"] // values["num_attention_heads"],
        # The first positions of the table are the padding's and those before it.
        "max_length": values["max_position_embeddings"] - tokens["pad_id"] - 1,
    }


# null of it says that no token ends a text.
def _special_ids(
    values: Mapping[str, Any], end: int, pad: int | None = None, start: int | None = None
) -> dict[str, Any]:
    """The fields `pad_id`, `start_id` and `end_ids` of a `ModelConfig`.

    Args:
      values: entries of config.json. `eos_token_id` is a token, a list of them, or null: no token
        ends a text.
      end, pad, start: what an entry that is missing means; None: the end token.
    """
    listed = values.get(_END, end)
    ends: tuple[int, ...] = ()
    if isinstance(listed, list):
        ends = tuple(listed)
    elif listed is not None:
        ends = (listed,)
    # Padding and beginning are the end of text where a config does not name them, as of a GPT-2.
    first_end = ends[0] if ends else end
    return {
        "pad_id": values.get("pad_token_id", first_end if pad is None else pad),
        "start_id": values.get("bos_token_id", first_end if start is None else start),
        "end_ids": ends,
    }


def _pad_within(pad_id: int, vocab_size: int) -> int:
    """The padding token, or 0 where it is not in the table.

    A row outside the table is NaN, which no mask removes. Padding is masked, so that any row will
    do.
    """
    return pad_id if 0 <= pad_id < vocab_size else 0


def _rotary(scaling: Mapping[str, Any], theta: float, share: float, source: str) -> Rotary:
    """Rotary positions by the entries of `rope_parameters` or `rope_scaling`.

    Raises:
      UserError: the scaling is unknown, or turns a part of a head.
      KeyError: it lacks a parameter.
    """
    # Since version 5 transformers writes it inside; an entry there counts before the outer one.
    theta = scaling.get("rope_theta", theta)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in SCALINGS:
        raise UserError(
            f"{source}: rotary positions of type {kind!r} are not supported, which are {', '.join(SCALINGS)}"
        )
    share = scaling.get("partial_rotary_factor", share)
    if share != 1.0:
        raise UserError(
            f"{source}: partial_rotary_factor is {share}: rotary positions of a part of a head are not supported"
        )
    return Rotary(theta, kind, *(scaling[name] for name in SCALINGS[kind]))


def _windows(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The fields `window` and `local_layers` of a `ModelConfig`; {} where every layer sees all
    tokens, as in every Llama.

    Raises:
      UserError: `layer_types` does not name each layer, names an unknown type, or layers with a
        window whose length is null.
    """
    gemma = values["model_type"] == "gemma3_text"
    qwen = values["model_type"] in ("qwen2", "qwen3")
    if not gemma and not (qwen and values.get("use_sliding_window")):
        return {}
    num_layers = values["num_hidden_layers"]
    window = values.get("sliding_window", _GEMMA_WINDOW if gemma else _QWEN_WINDOW)
    if values.get("layer_types"):
        names = values["layer_types"]
        if len(names) != num_layers:
            raise UserError(
                f"{source}: layer_types has {len(names)} entries for {num_layers} layers"
            )
        unknown = [name for name in names if name not in (GLOBAL, LOCAL)]
        if unknown:
            raise UserError(
                f"{source}: layer_types has {unknown[0]!r}, must be {GLOBAL} or {LOCAL}"
            )
        local = tuple(name == LOCAL for name in names)
    elif gemma:
        pattern = values.get("sliding_window_pattern", _GEMMA_PATTERN)
        # The last of every `pattern` layers sees all tokens.
        local = tuple((layer + 1) % pattern != 0 for layer in range(num_layers))
    else:
        first_local = values.get("max_window_layers", _QWEN_GLOBAL_LAYERS)
        # As in transformers: with null no layer of a Qwen has a window.
        has_window = window is not None
        local = tuple(has_window and layer >= first_local for layer in range(num_layers))
    if not any(local):
        return {}
    if window is None:
        raise UserError(f"{source}: sliding_window is null, and some layers have a window")
    return {"window": window, "local_layers": local}


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
        "t5": _t5_values, "gpt2": _gpt2_values, "llama": _llama_values, "qwen2": _llama_values, "qwen3": _llama_values, "gemma3_text": _gemma3_values, "roberta": _roberta_values,
    }  # fmt: skip
    ends = list(config.end_ids)
    values = {
        "model_type": config.architecture,
        "architectures": [_CLASSES[config.architecture]],
        **{
            name: attrgetter(field)(config)
            for field, (name, *_) in LAYOUTS[config.architecture].items()
        },
        "pad_token_id": config.pad_id,
        "decoder_start_token_id" if config.encoder_layers else "bos_token_id": config.start_id,
        # One token, a list of them, or null: no token ends a text.
        _END: ends[0] if len(ends) == 1 else ends or None,
        **writers[config.architecture](config),
    }
    values = {key: value for key, value in values.items() if value is not None or key == _END}
    # What the reader makes of the entries must be the model: some fields have no entry in some
    # architectures.
    read_back = dataclasses.asdict(parse(values))
    for key, value in dataclasses.asdict(config).items():
        if value != read_back[key]:
            raise UserError(
                f"config.json of a {config.architecture} model cannot hold {key}={value}: it would be read as {read_back[key]}"
            )
    return values


def _t5_values(config: ModelConfig) -> dict[str, Any]:
    # The reverse of `_t5`: transformers' 'gated-gelu' is the approximation by tanh.
    name = "gelu" if config.gated and config.activation == "gelu_new" else config.activation
    return {
        "is_encoder_decoder": True,
        "num_decoder_layers": config.layers,
        "feed_forward_proj": f"gated-{name}" if config.gated else name,
        "scale_decoder_outputs": config.scaled_head,
    }


def _gpt2_values(config: ModelConfig) -> dict[str, Any]:
    return {"n_inner": config.feed_forward}


def _llama_values(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or Rotary()
    values = {
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "rope_theta": rotary.theta,
        "rope_parameters": _rotary_values(rotary),
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
            "layer_types": _layer_type_values(config),
        }
    if rotary.kind != "default":  # where transformers before version 5 looks for it
        values["rope_scaling"] = _rotary_values(rotary)
    return values


def _gemma3_values(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or Rotary()
    local_rotary = config.local_rotary or rotary
    values: dict[str, Any] = {
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_width,
        "attention_bias": config.attention_bias,
        "sliding_window": config.window,
        "layer_types": _layer_type_values(config),
        "rope_parameters": {GLOBAL: _rotary_values(rotary), LOCAL: _rotary_values(local_rotary)},
        # Where transformers before version 5 looks for them.
        "rope_theta": rotary.theta,
        "rope_local_base_freq": local_rotary.theta,
    }
    if rotary.kind != "default":
        values["rope_scaling"] = _rotary_values(rotary)
    if config.activation == "gelu_new":
        values["hidden_activation"] = "gelu_pytorch_tanh"  # its name in Gemma's files
    return values


def _layer_type_values(config: ModelConfig) -> list[str]:
    if not config.local_layers:
        return [GLOBAL] * config.layers
    return [LOCAL if is_local else GLOBAL for is_local in config.local_layers]


def _rotary_values(rotary: Rotary) -> dict[str, Any]:
    theta, kind, *parameters = dataclasses.astuple(rotary)
    return {"rope_type": kind, "rope_theta": theta, **dict(zip(SCALINGS[kind], parameters))}


def _roberta_values(config: ModelConfig) -> dict[str, Any]:
    rows = (config.max_length or 0) + config.pad_id + 1
    return {"max_position_embeddings": rows, "type_vocab_size": 1}
