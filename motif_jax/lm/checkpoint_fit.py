"""Compares the tensors of a checkpoint with those that its config.json asks for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from motif_jax.core.errors import UserError, printable
from motif_jax.lm.checkpoint_files import NamedTensors
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.gguf.tensors import GgufTensors

# In the words of safetensors.
_FLOATS = ("F64", "F32", "F16", "BF16")
# Buffers that earlier versions of transformers and llama.cpp saved, whose values follow from
# config.json: masks, positions and their frequencies. The last one is a table that the published T5
# checkpoints have and no T5 reads.
_BUFFERS = re.compile(
    r"(.*\.)?("
    r"attn\.(bias|masked_bias)|rotary_emb\.(inv_freq|cos_cached|sin_cached)|embeddings\.(position_ids|token_type_ids)"
    r"|position_ids"
    r"|blk\.\d+\.attn_rot_embd(\.weight)?"
    r")|decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
)
# The names before which all of a network's tensors stand, and the first parts of names where that
# prefix is left out. Tensors elsewhere are heads of other tasks, which change nothing that is
# computed here.
_PREFIXES = {
    "gpt2": "transformer.",
    "llama": "model.",
    "qwen2": "model.",
    "qwen3": "model.",
    "gemma3_text": "model.",
    "roberta": "roberta.",
    "t5": "",
}
_MODULES = {
    "gpt2": ("wte", "wpe", "h", "ln_f", "lm_head"),
    "llama": ("embed_tokens", "layers", "norm", "lm_head"),
    "qwen2": ("embed_tokens", "layers", "norm", "lm_head"),
    "qwen3": ("embed_tokens", "layers", "norm", "lm_head"),
    "gemma3_text": ("embed_tokens", "layers", "norm", "lm_head"),
    "roberta": ("embeddings", "encoder"),
    "t5": ("shared", "encoder", "decoder", "lm_head"),
}
# First parts of llama.cpp's names, which tensors of a GGUF file keep where transformers has none.
_GGUF_MODULES = (
    "token_embd",
    "token_embd_norm",
    "position_embd",
    "blk",
    "output_norm",
    "output",
    "rope_factors_long",
    "rope_factors_short",
)
# RoBERTa's own heads, which `masked_head` and `load_pooler` read.
_READ_ELSEWHERE = re.compile(r"(roberta\.)?(pooler|lm_head)\..*")
# Copies of the embedding that files may have.
_COPIES = ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_ROWS = 4096
# So many tensors that differ are named.
_NAMED = 5


def require(
    tensors: NamedTensors,
    source: object,
    config: ModelConfig,
    embedding: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> list[str]:
    """Requires that a checkpoint has the tensors of a network and no others, but for heads of other
    tasks, whose names it returns.

    Args:
      embedding: the name of the embedding's tensor.
      shapes: the shape of each tensor in the file, by its full name.

    Raises:
      UserError: tensors are missing, have another shape, are not floats, or are part of the network
        and not used: a bias, a norm or a block too many would change its numbers.
    """
    present = [name for name in shapes if tensors.name_of(name) is not None]
    inside, outside = _unused(tensors, config, embedding, present)
    saved = {name: _form_in_file(tensors, name) for name in (*present, *inside)}
    require_equal(source, saved, {name: form(shape) for name, shape in shapes.items()})
    return outside


def form(shape: tuple[int, ...]) -> str:
    """A tensor of floats in the words of `require_equal`: 'float[3, 4]'."""
    return f"float{list(shape)}"


def _form_in_file(tensors: NamedTensors, name: str) -> str:
    dtype = tensors.dtype(name)
    shape = tensors.shape(name) or ()
    return form(shape) if dtype in _FLOATS else f"{dtype}{list(shape)}"


def require_equal(source: object, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raises UserError, which names the first tensors that differ, unless the forms of the tensors
    in a file are those of a model.
    """
    different = [
        f"{name}: {saved.get(name, 'absent')} saved, {wanted.get(name, 'absent')} wanted"
        for name in dict.fromkeys((*wanted, *saved))
        if saved.get(name) != wanted.get(name)
    ]
    if different:
        more = f" and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        raise UserError(
            f"{source} does not fit the model's config: {'; '.join(different[:_NAMED])}{more}"
        )


def say_unused(source: object, names: Sequence[str]) -> None:
    """Names tensors that are not used in a line on stderr."""
    if names:
        line = f"note: {source}: not used: {', '.join(names)}"
        print(printable(line), file=sys.stderr, flush=True)


def _unused(
    tensors: NamedTensors, config: ModelConfig, embedding: str, present: Iterable[str]
) -> tuple[list[str], list[str]]:
    """The tensors that are not used: those of the network, and those elsewhere."""
    used = {tensors.name_of(name) for name in present}
    inside: list[str] = []
    outside: list[str] = []
    prefix = _PREFIXES[config.architecture]
    modules = _MODULES[config.architecture]
    if isinstance(tensors, GgufTensors):
        modules = (*modules, *_GGUF_MODULES)
    for name in tensors.names:
        if name in used or _BUFFERS.fullmatch(name):
            continue
        if config.architecture == "roberta" and _READ_ELSEWHERE.fullmatch(name):
            continue
        # Tied models may be saved with their head written out.
        if name in _COPIES and is_copy(tensors, name, tensors.name_of(embedding)):
            continue
        # 'model.layers.0.mlp.bias' is inside, 'score.weight' outside. Where the prefix is left out,
        # the first part of the name decides.
        in_network = (prefix and name.startswith(prefix)) or name.partition(".")[0] in modules
        (inside if in_network else outside).append(name)
    return inside, outside


def is_copy(tensors: NamedTensors, name: str, embedding: str | None) -> bool:
    """Whether a tensor equals the embedding."""
    shape = tensors.shape(name)
    if embedding is None or not shape or shape != tensors.shape(embedding):
        return False
    if tensors.dtype(name) != tensors.dtype(embedding) or tensors.dtype(name) not in _FLOATS:
        return False
    return all(
        np.array_equal(
            tensors.rows(name, row, row + _ROWS), tensors.rows(embedding, row, row + _ROWS)
        )
        for row in range(0, shape[0], _ROWS)
    )
