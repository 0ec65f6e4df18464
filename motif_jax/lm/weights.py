"""Reads and writes parameters as safetensors files under transformers' names, in shards if they are large.

A table for each architecture maps tensors to parameters. Linear layers are transposed in the files ([out, in] in PyTorch), except
GPT-2's, whose queries, keys and values are one tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError, safe_open

from motif_jax.core import digests, tensor_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, parse_json
from motif_jax.lm.config import ModelConfig, read
from motif_jax.lm.model import param_shapes

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 4 << 30


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
    table = {"t5": _t5, "gpt2": _gpt2, "llama": _llama, "qwen2": _llama, "roberta": _roberta}
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
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield WeightEntry((side, "relative_bias"), first)
        yield WeightEntry((side, "final_norm", "scale"), f"{side}.final_layer_norm.weight")
        for layer in range(layers):
            path, name = (side, f"block_{layer}"), f"{side}.block.{layer}.layer"
            parts = [("attention", "SelfAttention")]
            if side == "decoder":
                parts.append(("cross_attention", "EncDecAttention"))
            for place, (ours, theirs) in enumerate(parts):
                for part in ("query", "key", "value", "output"):
                    yield from _linear((*path, ours, part), f"{name}.{place}.{theirs}.{part[0]}", False)
                norm = ours.replace("attention", "norm") if place else "attention_norm"
                yield WeightEntry((*path, norm, "scale"), f"{name}.{place}.layer_norm.weight")
            place, inner = len(parts), f"{name}.{len(parts)}.DenseReluDense"
            names = {"activated": "wi_0", "factor": "wi_1"} if config.gated else {"activated": "wi"}
            for ours, theirs in {**names, "down": "wo"}.items():
                yield from _linear((*path, "feed_forward", ours), f"{inner}.{theirs}", False)
            yield WeightEntry((*path, "feed_forward_norm", "scale"), f"{name}.{place}.layer_norm.weight")


def _gpt2(config: ModelConfig) -> Iterator[WeightEntry]:
    yield WeightEntry(("embedding",), "transformer.wte.weight")
    yield WeightEntry(("position_embedding",), "transformer.wpe.weight")
    yield from _layer_norm(("decoder", "final_norm"), "transformer.ln_f")
    for layer in range(config.layers):
        path, name = ("decoder", f"block_{layer}"), f"transformer.h.{layer}"
        yield from _layer_norm((*path, "attention_norm"), f"{name}.ln_1")
        yield from _layer_norm((*path, "feed_forward_norm"), f"{name}.ln_2")
        for part, ours in enumerate(("query", "key", "value")):
            yield from _linear((*path, "attention", ours), f"{name}.attn.c_attn", True, False, part)
        yield from _linear((*path, "attention", "output"), f"{name}.attn.c_proj", True, False)
        yield from _linear((*path, "feed_forward", "activated"), f"{name}.mlp.c_fc", True, False)
        yield from _linear((*path, "feed_forward", "down"), f"{name}.mlp.c_proj", True, False)


def _llama(config: ModelConfig) -> Iterator[WeightEntry]:
    yield WeightEntry(("embedding",), "model.embed_tokens.weight")
    yield WeightEntry(("decoder", "final_norm", "scale"), "model.norm.weight")
    for layer in range(config.layers):
        path, name = ("decoder", f"block_{layer}"), f"model.layers.{layer}"
        yield WeightEntry((*path, "attention_norm", "scale"), f"{name}.input_layernorm.weight")
        yield WeightEntry((*path, "feed_forward_norm", "scale"), f"{name}.post_attention_layernorm.weight")
        for part in ("query", "key", "value", "output"):
            bias = config.output_bias if part == "output" else config.attention_bias
            yield from _linear((*path, "attention", part), f"{name}.self_attn.{part[0]}_proj", bias)
        inner, bias = (*path, "feed_forward"), config.feed_forward_bias
        for ours, theirs in {"activated": "gate_proj", "factor": "up_proj", "down": "down_proj"}.items():
            yield from _linear((*inner, ours), f"{name}.mlp.{theirs}", bias)


def _roberta(config: ModelConfig) -> Iterator[WeightEntry]:
    top = "roberta.embeddings"
    yield WeightEntry(("embedding",), f"{top}.word_embeddings.weight")
    yield WeightEntry(("position_embedding",), f"{top}.position_embeddings.weight")
    yield WeightEntry(("type_embedding",), f"{top}.token_type_embeddings.weight")
    yield from _layer_norm(("embedding_norm",), f"{top}.LayerNorm")
    for layer in range(config.layers):
        path, name = ("encoder", f"block_{layer}"), f"roberta.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            yield from _linear((*path, "attention", part), f"{name}.attention.self.{part}", True)
        yield from _linear((*path, "attention", "output"), f"{name}.attention.output.dense", True)
        yield from _layer_norm((*path, "attention_norm"), f"{name}.attention.output.LayerNorm")
        yield from _linear((*path, "feed_forward", "activated"), f"{name}.intermediate.dense", True)
        yield from _linear((*path, "feed_forward", "down"), f"{name}.output.dense", True)
        yield from _layer_norm((*path, "feed_forward_norm"), f"{name}.output.LayerNorm")


class Tensors:
    """The tensors of a checkpoint folder by name, read when asked for, of a safetensors file or of an index and its shards.

    Raises:
      UserError: no such files, or one cannot be read; pickles are not opened.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, Any] = {}
        if (self._folder / INDEX).is_file():
            self._places = self._read_index()
        elif (self._folder / SINGLE).is_file():
            self._places = dict.fromkeys(self._open(SINGLE).keys(), SINGLE)
        else:
            pickles = sorted(p.name for p in self._folder.glob("*.bin"))
            why = f"{pickles[0]} is a pickle, which is never opened here" if pickles else f"no {SINGLE}"
            raise UserError(
                f"{folder} has no weights: {why}; save it with save_pretrained(..., safe_serialization=True)"
            )

    def _read_index(self) -> dict[str, str]:
        path = self._folder / INDEX
        try:
            places = parse_json(path.read_bytes())["weight_map"]
            if not (isinstance(places, dict) and all(isinstance(shard, str) for shard in places.values())):
                raise TypeError("weight_map does not say which file each tensor is in")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error!r}") from None
        for shard in sorted(set(places.values())):
            if Path(shard).name != shard or not (self._folder / shard).is_file():
                raise UserError(f"{path} names {shard}, which is not in the folder")
        return places

    def _open(self, shard: str) -> Any:
        if shard not in self._files:
            try:
                self._files[shard] = safe_open(self._folder / shard, framework="numpy")
            except (SafetensorError, OSError) as error:
                raise UserError(f"{self._folder / shard} is not a safetensors file: {error}") from None
        return self._files[shard]

    def _place(self, name: str) -> str | None:
        return next((each for each in (name, name.partition(".")[2]) if each in self._places), None)

    def find(self, name: str) -> np.ndarray | None:
        """The tensor `name`, with or without the model's prefix; None if it is missing."""
        place = self._place(name)
        return None if place is None else self._open(self._places[place]).get_tensor(place)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of the tensor that `find` reads; None if it is missing."""
        place = self._place(name)
        return None if place is None else tuple(self._open(self._places[place]).get_slice(place).get_shape())


def digest(folder: str | Path, below: bool = False) -> str:
    """Digest of the weights in a folder; `below`: in its subfolders too."""
    paths = sorted(Path(folder).glob("**/*.safetensors" if below else "*.safetensors"))
    return digests.of_bytes("".join(map(digests.of_input, paths)).encode())


def there(folder: str | Path) -> bool:
    """Whether a folder holds weights; a folder with config.json alone describes a fresh model."""
    return any((Path(folder) / name).is_file() for name in (INDEX, SINGLE))


def read_config(folder: str | Path) -> ModelConfig:
    """A folder's config; T5's `tied` is that of its weights, since transformers 5 writes every T5 as tied."""
    found = read(folder)
    if found.architecture != "t5" or not there(folder):
        return found
    return dataclasses.replace(found, tied=Tensors(folder).find("lm_head.weight") is None)


def load_pooler(folder: str | Path) -> dict[str, np.ndarray] | None:
    """RoBERTa's pooler, kernel and bias float32, as the first hidden layer (tanh) of a head; None where the file has none."""
    tensors = Tensors(folder)
    kernel, bias = (tensors.find(f"roberta.pooler.dense.{part}") for part in ("weight", "bias"))
    if kernel is None or bias is None:
        return None
    return {"kernel": np.asarray(kernel.T, np.float32), "bias": np.asarray(bias, np.float32)}


def check(folder: str | Path, config: ModelConfig) -> None:
    """Raises UserError where `load` would, but reads no tensor."""
    tensors, wanted = Tensors(folder), flatten_dict(param_shapes(config))
    for entry in entries(config):
        shape = tensors.shape(entry.name)
        if shape is not None and entry.part is not None:
            shape = (*shape[:-1], shape[-1] // 3)
        _require(folder, entry, shape, wanted[entry.path].shape)


def _require(
    source: str | Path, entry: WeightEntry, shape: tuple[int, ...] | None, wanted: tuple[int, ...]
) -> None:
    """Raises UserError where a tensor is missing (`shape` None), or is not `wanted` after its transposition."""
    if shape is None:
        raise UserError(f"{source}: tensor {entry.name} is missing")
    if (shape[::-1] if entry.transposed else shape) != wanted:
        raise UserError(
            f"{source}: tensor {entry.name} is {list(shape)}, which does not fit config.json: {list(wanted)} expected"
        )


def load(folder: str | Path, config: ModelConfig, dtype: Any = None) -> Any:
    """Reads the parameters of a checkpoint folder, numpy arrays of `dtype` (None: float32), one tensor at a time.

    Raises:
      UserError: a tensor is missing or has another shape.
    """
    return collect(Tensors(folder).find, folder, config, dtype)


def collect(
    find: Callable[[str], np.ndarray | None], source: str | Path, config: ModelConfig, dtype: Any = None
) -> Any:
    """The parameters of a model from tensors under transformers' names (`find` has None for a missing one); errors name `source`."""
    shapes, flat = flatten_dict(param_shapes(config)), {}
    for entry in entries(config):
        tensor = find(entry.name)
        if tensor is not None and entry.part is not None:
            tensor = np.split(tensor, 3, axis=-1)[entry.part]
        _require(source, entry, None if tensor is None else tensor.shape, shapes[entry.path].shape)
        assert tensor is not None
        flat[entry.path] = np.asarray(tensor.T if entry.transposed else tensor, dtype or np.float32)
    return unflatten_dict(flat)


def save(folder: str | Path, params: Any, config: ModelConfig) -> None:
    """Writes parameters as transformers opens them: one file, or shards of at most `SHARD_BYTES` with their index.

    The host holds one shard at a time. Weights that were in the folder are replaced.
    """
    folder, flat = Path(folder), flatten_dict(params)
    folder.mkdir(parents=True, exist_ok=True)
    for old in (INDEX, SINGLE, *(path.name for path in folder.glob("model-*-of-*.safetensors"))):
        (folder / old).unlink(missing_ok=True)
    sources: dict[str, list[WeightEntry]] = {}
    for entry in entries(config):
        sources.setdefault(entry.name, []).append(entry)
    sizes = {name: sum(flat[entry.path].nbytes for entry in parts) for name, parts in sources.items()}
    shards: list[list[str]] = [[]]
    for name, size in sizes.items():
        if shards[-1] and sum(sizes[x] for x in shards[-1]) + size > SHARD_BYTES:
            shards.append([])
        shards[-1].append(name)
    places: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = SINGLE if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: _tensor(sources[name], flat) for name in names}
        tensor_files.save(tensors, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": places}
        atomic_write_json(folder / INDEX, index)


def _tensor(parts: Sequence[WeightEntry], flat: Mapping[tuple[str, ...], Any]) -> np.ndarray:
    values = [np.asarray(flat[entry.path]) for entry in parts]
    values = [value.T if entry.transposed else value for entry, value in zip(parts, values, strict=True)]
    return np.ascontiguousarray(values[0] if parts[0].part is None else np.concatenate(values, axis=-1))
