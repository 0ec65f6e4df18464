"""Compares the tensors of a checkpoint with those that its config.json asks for: missing,
misshapen, quantised, unused ones.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from motif_jax.core.errors import UserError, printable
from motif_jax.lm.checkpoint_files import NamedTensors
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.config_entries import UNQUANTISED
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
# The head of a decoder whose embedding is not its head, too.
_HEAD = "lm_head.weight"
_HEAD_REMEDY = (
    "for a head of the model's own tie_word_embeddings is false in config.json, else true"
)
_ROWS = 4096
# Up to so many names are written out.
_WRITTEN_OUT = 16


def require(
    tensors: NamedTensors,
    source: object,
    config: ModelConfig,
    embedding: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> list[str]:
    """Requires that a checkpoint has the tensors of a network and no others, but for heads of other
    tasks, which it returns.

    Args:
      embedding: the name of the embedding's tensor.
      shapes: the shape of each tensor in the file, by its full name.

    Raises:
      UserError: tensors are missing, have another shape, are not floats, or are part of the network
        and not used. The message begins with `source` and names each of them.
    """
    problems = []
    missing = [name for name in shapes if tensors.name_of(name) is None]
    if missing:
        tied = f" ({_HEAD_REMEDY})" if _HEAD in missing else ""
        problems.append(f"{named(missing)} {_are(missing)} missing{tied}")
    present = [name for name in shapes if name not in missing]
    coded = [name for name in present if tensors.dtype(name) not in _FLOATS]
    if coded:
        dtypes = ", ".join(sorted({str(tensors.dtype(name)) for name in coded}))
        problems.append(f"{named(coded)} {_are(coded)} quantised or no floats ({dtypes})")
    # A tensor that is quantised may be named twice, since its shape is packed.
    misshapen = [name for name in present if tensors.shape(name) != shapes[name]]
    if misshapen:
        first = misshapen[0]
        problems.append(
            misfit(first, tensors.shape(first) or (), shapes[first], len(misshapen) - 1)
        )
    # What is left over inside the network would change its numbers: a bias, a norm, a block too
    # many.
    inside, outside = _unused(tensors, config, embedding, present)
    if inside:
        untied = f" ({_HEAD_REMEDY})" if _HEAD in inside else ""
        problems.append(
            f"{named(inside)} {_are(inside)} not used: the model has parts that config.json does not name or that are not supported{untied}"
        )
    if problems:
        remedy = f"; {UNQUANTISED}" if coded else ""
        raise UserError(f"{source}: {'; '.join(problems)}{remedy}")
    return outside


def say_unused(source: object, names: Sequence[str]) -> None:
    """Names tensors that are not used in a line on stderr."""
    if names:
        print(
            printable(f"note: {source}: {named(names)} {_are(names)} not used"),
            file=sys.stderr,
            flush=True,
        )


def misfit(
    name: str, shape: tuple[int, ...], expected_shape: tuple[int, ...], others: int = 0
) -> str:
    """A tensor of another shape than config.json asks for, and the number of others, in words."""
    turned = " (is it transposed?)" if len(shape) > 1 and shape == expected_shape[::-1] else ""
    more = f", nor do {others} others" if others else ""
    return f"tensor {name} is {list(shape)}, which does not fit config.json: {list(expected_shape)} expected{turned}{more}"


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


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def named(names: Sequence[str]) -> str:
    """All names in one line; of many, those that differ by the number of their layer are one:
    'layers.{0-23}.norm.bias'.
    """
    if len(names) == 1:
        return f"tensor {names[0]}"
    if len(names) <= _WRITTEN_OUT:
        return f"tensors {', '.join(names)}"
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    listed: list[str | tuple[str, str]] = []
    for name in names:
        numbered = re.fullmatch(r"(.*?\.)(\d{1,6})(\..*)", name)
        if numbered is None:
            listed.append(name)
            continue
        ends = numbered[1], numbered[3]
        if ends not in numbers:
            listed.append(ends)
        numbers[ends].append(int(numbered[2]))
    texts = [
        entry if isinstance(entry, str) else f"{entry[0]}{_ranges(numbers[entry])}{entry[1]}"
        for entry in listed
    ]
    return f"{len(names):,} tensors {', '.join(texts)}"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers in short: '3', or '{0-2,5}'."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return texts[0] if texts == [str(spans[0][0])] else f"{{{','.join(texts)}}}"
