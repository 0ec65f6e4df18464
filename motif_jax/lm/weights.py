"""Reads and writes parameters as safetensors files under transformers' names, in shards if they are
large; reads GGUF files.

A table for each architecture maps tensors to parameters. Linear layers are transposed in the files
([out, in] in PyTorch), except GPT-2's, whose queries, keys and values are one tensor.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.core import digests, tensor_files
from motif_jax.core.files import atomic_write_json
from motif_jax.lm import checkpoint_fit
from motif_jax.lm.checkpoint_files import INDEX, SINGLE, NamedTensors, Tensors, open_tensors
from motif_jax.lm.config import ModelConfig, read
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.model import param_shapes

SHARD_BYTES = 4 << 30
# Rows of a table that are looked at together.
_ROWS = 4096


class WeightEntry(NamedTuple):
    """The path of one parameter and the name of its tensor.

    Attributes:
      transposed: the file has it transposed.
      part: the third of the tensor's last axis that it is, 0 to 2; None: the whole tensor.
    """

    path: tuple[str, ...]
    name: str
    transposed: bool = False
    part: int | None = None


def entries(config: ModelConfig) -> list[WeightEntry]:
    """The table of an architecture."""
    table = {
        "t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "qwen3": _llama, "gemma3_text": _llama, "roberta": _roberta,
    }  # fmt: skip
    head = () if config.tied or not config.has_decoder else _linear(("head",), "lm_head", False)
    return [*table[config.architecture](config), *head]


def _linear(
    path: tuple[str, ...], name: str, bias: bool, transposed: bool = True, part: int | None = None
) -> Iterator[WeightEntry]:
    yield WeightEntry((*path, "kernel"), f"{name}.weight", transposed, part)
    if bias:
        yield WeightEntry((*path, "bias"), f"{name}.bias", part=part)


def _layer_norm(path: tuple[str, ...], name: str) -> Iterator[WeightEntry]:
    yield WeightEntry((*path, "norm", "scale"), f"{name}.weight")
    yield WeightEntry((*path, "norm", "bias"), f"{name}.bias")


def _t5(config: ModelConfig) -> Iterator[WeightEntry]:
    yield WeightEntry(("embedding",), "shared.weight")
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.layers)):
        # All blocks share it, and the files keep it in the first.
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield WeightEntry((side, "relative_bias"), first)
        yield WeightEntry((side, "final_norm", "scale"), f"{side}.final_layer_norm.weight")
        for layer in range(layers):
            path = (side, f"block_{layer}")
            name = f"{side}.block.{layer}.layer"
            attentions = [("attention", "attention_norm", "SelfAttention")]
            if side == "decoder":
                attentions.append(("cross_attention", "cross_norm", "EncDecAttention"))
            for number, (ours, norm, theirs) in enumerate(attentions):
                for part in ("query", "key", "value", "output"):
                    yield from _linear(
                        (*path, ours, part), f"{name}.{number}.{theirs}.{part[0]}", False
                    )
                yield WeightEntry((*path, norm, "scale"), f"{name}.{number}.layer_norm.weight")
            last = len(attentions)
            names = {"activated": "wi_0", "factor": "wi_1"} if config.gated else {"activated": "wi"}
            # Feed-forward comes after the attentions: layer 1 of an encoder's block, 2 of a
            # decoder's.
            for ours, theirs in {**names, "down": "wo"}.items():
                inner = f"{name}.{last}.DenseReluDense.{theirs}"
                yield from _linear((*path, "feed_forward", ours), inner, False)
            yield WeightEntry(
                (*path, "feed_forward_norm", "scale"), f"{name}.{last}.layer_norm.weight"
            )


def _gpt2(config: ModelConfig) -> Iterator[WeightEntry]:
    yield WeightEntry(("embedding",), "transformer.wte.weight")
    yield WeightEntry(("position_embedding",), "transformer.wpe.weight")
    yield from _layer_norm(("decoder", "final_norm"), "transformer.ln_f")
    for layer in range(config.layers):
        path = ("decoder", f"block_{layer}")
        name = f"transformer.h.{layer}"
        yield from _layer_norm((*path, "attention_norm"), f"{name}.ln_1")
        yield from _layer_norm((*path, "feed_forward_norm"), f"{name}.ln_2")
        # One tensor [in, 3 out] in the file, not transposed: GPT-2's layers are transformers'
        # Conv1D.
        for part, ours in enumerate(("query", "key", "value")):
            yield from _linear((*path, "attention", ours), f"{name}.attn.c_attn", True, False, part)
        yield from _linear((*path, "attention", "output"), f"{name}.attn.c_proj", True, False)
        yield from _linear((*path, "feed_forward", "activated"), f"{name}.mlp.c_fc", True, False)
        yield from _linear((*path, "feed_forward", "down"), f"{name}.mlp.c_proj", True, False)


def _llama(config: ModelConfig) -> Iterator[WeightEntry]:
    yield WeightEntry(("embedding",), "model.embed_tokens.weight")
    yield WeightEntry(("decoder", "final_norm", "scale"), "model.norm.weight")
    for layer in range(config.layers):
        path = ("decoder", f"block_{layer}")
        name = f"model.layers.{layer}"
        yield WeightEntry((*path, "attention_norm", "scale"), f"{name}.input_layernorm.weight")
        # Gemma's name for the norm before the feed-forward layer is Llama's for the one after
        # attention.
        before = "pre_feedforward_layernorm" if config.output_norms else "post_attention_layernorm"
        yield WeightEntry((*path, "feed_forward_norm", "scale"), f"{name}.{before}.weight")
        if config.output_norms:
            yield WeightEntry(
                (*path, "attention_output_norm", "scale"), f"{name}.post_attention_layernorm.weight"
            )
            yield WeightEntry(
                (*path, "feed_forward_output_norm", "scale"),
                f"{name}.post_feedforward_layernorm.weight",
            )
        if config.query_key_norm:
            yield WeightEntry(
                (*path, "attention", "query_norm", "scale"), f"{name}.self_attn.q_norm.weight"
            )
            yield WeightEntry(
                (*path, "attention", "key_norm", "scale"), f"{name}.self_attn.k_norm.weight"
            )
        for part in ("query", "key", "value", "output"):
            bias = config.output_bias if part == "output" else config.attention_bias
            yield from _linear((*path, "attention", part), f"{name}.self_attn.{part[0]}_proj", bias)
        for ours, theirs in {
            "activated": "gate_proj",
            "factor": "up_proj",
            "down": "down_proj",
        }.items():
            yield from _linear(
                (*path, "feed_forward", ours), f"{name}.mlp.{theirs}", config.feed_forward_bias
            )


def _roberta(config: ModelConfig) -> Iterator[WeightEntry]:
    # No entry for a final norm: each block ends with one.
    top = "roberta.embeddings"
    yield WeightEntry(("embedding",), f"{top}.word_embeddings.weight")
    yield WeightEntry(("position_embedding",), f"{top}.position_embeddings.weight")
    yield WeightEntry(("type_embedding",), f"{top}.token_type_embeddings.weight")
    yield from _layer_norm(("embedding_norm",), f"{top}.LayerNorm")
    for layer in range(config.layers):
        path = ("encoder", f"block_{layer}")
        name = f"roberta.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            yield from _linear((*path, "attention", part), f"{name}.attention.self.{part}", True)
        yield from _linear((*path, "attention", "output"), f"{name}.attention.output.dense", True)
        yield from _layer_norm((*path, "attention_norm"), f"{name}.attention.output.LayerNorm")
        yield from _linear((*path, "feed_forward", "activated"), f"{name}.intermediate.dense", True)
        yield from _linear((*path, "feed_forward", "down"), f"{name}.output.dense", True)
        yield from _layer_norm((*path, "feed_forward_norm"), f"{name}.output.LayerNorm")


def digest(folder: str | Path, below: bool = False) -> str:
    """Digest of the weights in a folder; `below`: in its subfolders too."""
    pattern = "**/*.safetensors" if below else "*.safetensors"
    # By the files' bytes in the order of their names; the names themselves do not count.
    paths = sorted(path for path in Path(folder).glob(pattern) if path.is_file())
    file = gguf_folder.file_in(folder)
    if file is not None:
        paths.append(file)
    return digests.of_bytes("".join(map(digests.of_input, paths)).encode())


def there(folder: str | Path) -> bool:
    """Whether a folder holds weights; a folder with config.json alone describes a fresh model."""
    return any((Path(folder) / name).is_file() for name in (INDEX, SINGLE, gguf_folder.LINK))


def read_config(folder: str | Path) -> ModelConfig:
    """A folder's config; T5's `tied` is that of its weights, since transformers 5 writes every T5
    as tied.
    """
    settings = read(folder)
    if settings.architecture != "t5" or not there(folder):
        return settings
    return dataclasses.replace(settings, tied=Tensors(folder).name_of("lm_head.weight") is None)


def load_pooler(folder: str | Path) -> dict[str, np.ndarray] | None:
    """RoBERTa's pooler, kernel and bias float32, as the first hidden layer (tanh) of a head; None
    where the file has none.
    """
    tensors = Tensors(folder)
    kernel = tensors.find("roberta.pooler.dense.weight")
    bias = tensors.find("roberta.pooler.dense.bias")
    if kernel is None or bias is None:
        return None
    return {"kernel": np.asarray(kernel.T, np.float32), "bias": np.asarray(bias, np.float32)}


def check(folder: str | Path, config: ModelConfig) -> None:
    """Raises UserError where `load` would, but for numbers that are not finite; reads no tensor."""
    _require(open_tensors(folder), folder, config)


def _require(tensors: NamedTensors, folder: str | Path, config: ModelConfig) -> list[str]:
    """Raises UserError where the tensors do not fit the model; returns the names of those that are
    not used.
    """
    table = entries(config)
    shapes = flatten_dict(param_shapes(config))
    expected_shapes = {entry.name: _file_shape(entry, shapes[entry.path].shape) for entry in table}
    embedding = next(entry.name for entry in table if entry.path == ("embedding",))
    return checkpoint_fit.require(tensors, folder, config, embedding, expected_shapes)


def _file_shape(entry: WeightEntry, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the tensor that a parameter of this shape is read from."""
    if entry.part is not None:
        return (*shape[:-1], 3 * shape[-1])
    return shape[::-1] if entry.transposed else shape


def load(
    folder: str | Path,
    config: ModelConfig,
    dtype: Any = None,
    put: Callable[[np.ndarray], Any] = np.asarray,
    output_major: bool = False,
) -> Any:
    """Reads the parameters of a checkpoint folder, arrays of `dtype` (None: float32), one tensor at
    a time.

    `put` puts a parameter where it stays, as `jax.device_put` does: the host then holds one tensor
    besides. With `output_major` kernels are [out, in], for a `LanguageModel` of that kind.

    Raises:
      UserError: a tensor is missing, has another shape or dtype, is not used, or has numbers that
          are not finite.
    """
    # Names and shapes of all tensors are checked before the first one is read.
    tensors = open_tensors(folder)
    checkpoint_fit.say_unused(folder, _require(tensors, folder, config))
    find = functools.partial(tensors.find, dtype=dtype or np.float32)
    return collect(find, folder, config, dtype, put, output_major)


def collect(
    find: Callable[[str], np.ndarray | None],
    source: str | Path,
    config: ModelConfig,
    dtype: Any = None,
    put: Callable[[np.ndarray], Any] = np.asarray,
    output_major: bool = False,
) -> Any:
    """The parameters of a model from tensors under transformers' names; errors name `source`.

    `find` has None for a missing tensor; `put` and `output_major` as in `load`.

    Raises:
      UserError: tensors are missing, have another shape, or have numbers that are not finite.
    """
    shapes = flatten_dict(param_shapes(config))
    flat: dict[tuple[str, ...], Any] = {}
    # What `checkpoint_fit` compares, besides `_require`: `published` calls this with tensors of
    # other files.
    saved: dict[str, str] = {}
    wanted: dict[str, str] = {}
    not_finite: list[str] = []
    for entry in entries(config):
        wanted[entry.name] = checkpoint_fit.form(_file_shape(entry, shapes[entry.path].shape))
        tensor = find(entry.name)
        if tensor is None:
            continue
        saved[entry.name] = checkpoint_fit.form(tensor.shape)
        if saved[entry.name] != wanted[entry.name]:
            continue
        if entry.part is not None:
            tensor = np.split(tensor, 3, axis=-1)[entry.part]
        # Files have [out, in] but for GPT-2's; one transposition serves both reasons.
        is_turned = entry.transposed
        if output_major and entry.path[-1] == "kernel":
            is_turned = not is_turned
        array = np.asarray(tensor.T if is_turned else tensor, dtype or np.float32)
        del tensor  # while a table is put in its place, the host holds it once and not twice
        if not _is_finite(array):
            not_finite.append(entry.name)
        flat[entry.path] = put(array)
    # After the loop, so that the error names all of them and not the first alone.
    saved |= dict.fromkeys(not_finite, "NaN or infinite numbers")
    checkpoint_fit.require_equal(source, saved, wanted)
    return unflatten_dict(flat)


def _is_finite(array: np.ndarray) -> bool:
    """Whether no number is NaN or infinite; looks at a part of the rows at a time, so that a table
    needs no second one.
    """
    return all(np.isfinite(array[row : row + _ROWS]).all() for row in range(0, len(array), _ROWS))


def save(folder: str | Path, params: Any, config: ModelConfig) -> None:
    """Writes parameters as transformers opens them: one file, or shards of at most `SHARD_BYTES`
    with their index.

    The host holds one shard at a time. Weights that were in the folder are replaced.

    Raises:
      ValueError: a parameter has another shape than the config's, as kernels [out, in] have.
    """
    folder = Path(folder)
    flat = flatten_dict(params)
    shapes = flatten_dict(param_shapes(config))
    # Before anything is removed: the old weights stay where the new ones do not fit.
    for entry in entries(config):
        expected = shapes[entry.path].shape
        if flat[entry.path].shape != expected:
            raise ValueError(
                f"{'/'.join(entry.path)} is {flat[entry.path].shape}, and not {expected}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    # A file of before would be read in place of the new shards.
    for old in (INDEX, SINGLE, *(path.name for path in folder.glob("model-*-of-*.safetensors"))):
        (folder / old).unlink(missing_ok=True)
    # A tensor may hold several parameters, as GPT-2's queries, keys and values.
    sources: dict[str, list[WeightEntry]] = {}
    for entry in entries(config):
        sources.setdefault(entry.name, []).append(entry)
    sizes = {
        name: sum(flat[entry.path].nbytes for entry in parts) for name, parts in sources.items()
    }
    shards: list[list[str]] = [[]]
    for name, size in sizes.items():
        if shards[-1] and sum(sizes[x] for x in shards[-1]) + size > SHARD_BYTES:
            shards.append([])
        shards[-1].append(name)
    file_of: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = (
            SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        )
        tensors = {name: _tensor(sources[name], flat) for name in names}
        tensor_files.save(tensors, folder / file, metadata={"format": "pt"})
        file_of |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": file_of}
        atomic_write_json(folder / INDEX, index)


def _tensor(parts: Sequence[WeightEntry], flat: Mapping[tuple[str, ...], Any]) -> np.ndarray:
    # From the device here: the host holds a shard's tensors alone.
    values = [np.asarray(flat[entry.path]) for entry in parts]
    values = [
        value.T if entry.transposed else value for entry, value in zip(parts, values, strict=True)
    ]
    return np.ascontiguousarray(
        values[0] if parts[0].part is None else np.concatenate(values, axis=-1)
    )
