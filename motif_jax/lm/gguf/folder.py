"""The small folder that stands for a GGUF file: what the file's metadata say, as the files of a
checkpoint, and a link to the file.

Everything that takes a model's folder then takes the file. The tensors stay where they are. The
folder is in the user's cache and is made once for a version of the file.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests, resources, tokenizer_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, atomic_write_text
from motif_jax.lm import config, tokens
from motif_jax.lm.attention import rotary_frequencies
from motif_jax.lm.config import GLOBAL, LOCAL, Rotary
from motif_jax.lm.gguf import files, tokenizer
from motif_jax.lm.gguf.files import Header

LINK = "model.gguf"
# Raised when a change here makes other files of the same GGUF file.
_FORM = 3
# transformers' model type of llama.cpp's architectures.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
# Entry of config.json -> key of the metadata, after the architecture.
_REQUIRED = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_OPTIONAL = {
    "max_position_embeddings": "context_length",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "rope_local_base_freq": "rope.freq_base_swa",
}
# Gemma 3 divides scores by the root of a head's width, but for its largest model, of so many
# layers, which llama.cpp knows as well.
_GEMMA_27B_LAYERS = 62
# Llama 3's scaling of rotary positions: only the factor differs from model to model (3.1: 8, 3.2:
# 32).
_LOW, _HIGH, _ORIGINAL = 1.0, 4.0, 8192
_TOKENS = {"bos_token_id": "bos_token_id", "pad_token_id": "padding_token_id"}
# Tokens that end a text: of a document, and of a turn.
_ENDS = ("eos_token_id", "eot_token_id")
# A file without `eot_token_id` may have the end of a turn all the same: llama.cpp finds it by these
# texts.
_TURN_ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
)


def resolved(path: str | Path) -> Path:
    """The folder itself, or the one that stands for the GGUF file that `path` is or holds; raises
    as `folder_of` and `only_file`.
    """
    file = Path(path) if files.is_gguf(path) else only_file(path)
    return Path(path) if file is None else folder_of(file)


def only_file(folder: str | Path) -> Path | None:
    """The GGUF file of a folder that has no config.json; None for other folders.

    Raises:
      UserError: there are several: they are the same model packed in several ways, or parts of one.
    """
    paths = sorted(Path(folder).glob(f"*{files.SUFFIX}"))
    if not paths or (Path(folder) / config.FILE).exists():
        return None
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise UserError(f"{folder} has several GGUF files ({names}): give the path of one of them")
    return paths[0]


def folder_of(path: str | Path) -> Path:
    """The folder of a GGUF file, which is made where it is missing.

    Raises:
      UserError: the file has an architecture, a tokenizer or tensors that are not supported.
    """
    # Not resolved: on the hub's copies the link has the name, and the file a digest.
    path = Path(path).absolute()
    state = path.stat()
    # Size and time in place of a digest of gigabytes; an edited file gets a folder of its own.
    version = digests.of_bytes(f"{_FORM} {path} {state.st_size} {state.st_mtime_ns}".encode())
    target = resources.cache_folder("gguf") / f"{path.stem}-{version}"
    if not target.is_dir():
        _make(path, target)
    return target


def _make(path: Path, target: Path) -> None:
    # Several processes may make it at once; the first one's stays.
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        part.mkdir(parents=True)
        values = config_values(path)
        backend = tokenizer.build(path)
        described = tokenizer.description(path, backend)
        atomic_write_text(part / tokens.FILE, backend.to_str())
        atomic_write_json(part / tokenizer_files.CONFIG_FILE, described.config)
        atomic_write_json(part / tokenizer_files.TOKENS_FILE, described.names)
        atomic_write_json(part / config.FILE, values)
        (part / LINK).symlink_to(path)
        try:
            # Fails where another process was first: its folder has the same content.
            part.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def file_in(folder: str | Path) -> Path | None:
    """The GGUF file that a folder links to; None where it does not."""
    link = Path(folder) / LINK
    return link if files.is_gguf(link) else None


def config_values(path: str | Path) -> dict[str, Any]:
    """The entries of a config.json.

    Raises:
      UserError: the architecture or the rotary positions are not supported.
    """
    header = files.read(path)
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        allowed = ", ".join(ARCHITECTURES)
        raise UserError(
            f"{path}: general.architecture is {architecture!r}, must be one of {allowed}"
        )
    values: dict[str, Any] = {
        "model_type": ARCHITECTURES[architecture],
        "vocab_size": header.tensors[files.EMBEDDING].shape[0],
    }
    values |= {entry: metadata[f"{architecture}.{key}"] for entry, key in _REQUIRED.items()}
    values |= {entry: metadata.get(f"{architecture}.{key}") for entry, key in _OPTIONAL.items()}
    # llama.cpp writes no head where it is the embedding.
    values["tie_word_embeddings"] = files.HEAD not in header.tensors
    # By the tensors, since the metadata do not say it.
    values["attention_bias"] = "blk.0.attn_output.bias" in header.tensors
    values["mlp_bias"] = "blk.0.ffn_up.bias" in header.tensors
    if architecture == "gemma3":
        values["query_pre_attn_scalar"] = _gemma_scalar(values)
        values |= _pattern(metadata)
    values |= _special_tokens(metadata, values["vocab_size"])
    # After the entries, of which it needs the width of a head.
    _require_whole_heads(path, metadata, architecture, values)
    scaling = _scaling(path, header, architecture, values)
    if scaling is not None:
        values["rope_scaling"] = scaling
    return {entry: value for entry, value in values.items() if value is not None}


def _gemma_scalar(values: Mapping[str, Any]) -> int:
    """The number by whose square root Gemma 3's attention scores are divided; a GGUF file does not
    have it.
    """
    if values["num_hidden_layers"] == _GEMMA_27B_LAYERS:
        return values["hidden_size"] // values["num_attention_heads"]
    return values["head_dim"] or 256


def _pattern(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Which layers of a Gemma have a window: every so many layers one has none, or a flag for each
    layer; {} as by default.
    """
    pattern = metadata.get("gemma3.attention.sliding_window_pattern")
    if pattern is None:
        return {}
    if isinstance(pattern, np.ndarray):
        return {"layer_types": [LOCAL if is_local else GLOBAL for is_local in pattern.tolist()]}
    return {"sliding_window_pattern": pattern}


def _special_tokens(metadata: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """The numbers of special tokens; those without a row in the table are left out, as llama.cpp
    does.
    """

    def number_of(key: str) -> int | None:
        number = metadata.get(f"tokenizer.ggml.{key}")
        return number if number is not None and 0 <= number < vocab_size else None

    values: dict[str, Any] = {entry: number_of(key) for entry, key in _TOKENS.items()}
    ends = [number_of(key) for key in _ENDS]
    if ends[-1] is None:
        tokens = metadata.get("tokenizer.ggml.tokens", [])
        ends += [tokens.index(text) for text in _TURN_ENDS if text in tokens]
    distinct = list(dict.fromkeys(end for end in ends if end is not None))
    if distinct:
        values["eos_token_id"] = distinct[0] if len(distinct) == 1 else distinct
    return values


def _require_whole_heads(
    path: str | Path, metadata: Mapping[str, Any], architecture: str, values: Mapping[str, Any]
) -> None:
    """Raises UserError where rotary positions turn a part of a head, or values have another width
    than keys.
    """
    head_width = values["head_dim"] or values["hidden_size"] // values["num_attention_heads"]
    for key in ("rope.dimension_count", "attention.value_length"):
        width = metadata.get(f"{architecture}.{key}", head_width)
        if width != head_width:
            raise UserError(
                f"{path}: {architecture}.{key} is {width}, must be {head_width}, the width of a head"
            )


def _scaling(
    path: str | Path, header: Header, architecture: str, values: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The scaling of rotary positions as config.json has it; None without one."""
    metadata = header.metadata
    kind = metadata.get(f"{architecture}.rope.scaling.type", "none")
    linear = metadata.get(f"{architecture}.rope.scale_linear")
    # Before the kind of the scaling, which files of Llama 3 do not name.
    if files.ROTARY_FACTORS in header.tensors:
        head_width = values["head_dim"] or values["hidden_size"] // values["num_attention_heads"]
        return _llama3_scaling(path, values["rope_theta"] or Rotary().theta, head_width)
    if kind == "none":
        return None if linear is None else {"rope_type": "linear", "factor": linear}
    # `config.parse` refuses kinds that it does not know.
    return {"rope_type": kind, "factor": metadata.get(f"{architecture}.rope.scaling.factor", 1.0)}


def _llama3_scaling(path: str | Path, theta: float, head_width: int) -> dict[str, Any]:
    """Llama 3's scaling, of which a GGUF file has the divisor of each frequency instead of the
    parameters.

    Raises:
      UserError: the divisors are not those of Llama 3's formula.
    """
    divisors = files.GgufTensors(path).read_as_it_is(files.ROTARY_FACTORS)
    # The longest waves are stretched by the whole factor.
    factor = float(divisors[-1])
    scaled = rotary_frequencies(Rotary(theta, "llama3", factor, _LOW, _HIGH, _ORIGINAL), head_width)
    plain = rotary_frequencies(Rotary(theta), head_width)
    if divisors.shape != plain.shape or not np.allclose(plain / divisors, scaled, rtol=1e-3):
        raise UserError(
            f"{path}: {files.ROTARY_FACTORS} are not those of Llama 3, others are not supported"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _ORIGINAL,
    }
