"""Reads and writes parameters as safetensors files under transformers' names, in shards if they are
large; reads GGUF files.

A table for each architecture maps tensors to parameters. Linear layers are transposed in the files
([out, in] in PyTorch), except GPT-2's, whose queries, keys and values are one tensor.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import safe_open

from motif_jax.core import digests, tensor_files
from motif_jax.core.errors import UserError, printable
from motif_jax.core.files import atomic_write_json
from motif_jax.lm.config import ModelConfig, read
from motif_jax.lm.gguf import folder as gguf_folder
from motif_jax.lm.gguf.files import GgufTensors
from motif_jax.lm.model import param_shapes

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_BYTES = 4 << 30
# Numbers that are converted at a time.
NUMBERS_AT_ONCE = 1 << 22
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
# Rows of a table that are looked at together.
_ROWS = 4096
# So many tensors that differ are named.
_NAMED = 5


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


class NamedTensors(Protocol):
    """Tensors under transformers' names, with or without the model's prefix, see `Tensors`."""

    @property
    def names(self) -> list[str]: ...

    def name_of(self, name: str) -> str | None: ...

    def find(self, name: str, dtype: Any = None) -> np.ndarray | None: ...

    def rows(self, name: str, start: int, stop: int) -> np.ndarray: ...

    def shape(self, name: str) -> tuple[int, ...] | None: ...

    def dtype(self, name: str) -> str | None: ...


def open_tensors(folder: str | Path) -> NamedTensors:
    """The tensors of a checkpoint folder, or of the GGUF file that it stands for
    (`gguf.folder`).
    """
    file = gguf_folder.file_in(folder)
    return Tensors(folder) if file is None else GgufTensors(file)


class Tensors:
    """The tensors of a checkpoint folder, each read when it is asked for.

    Where a folder has one file and an index of shards, the one file is read, as transformers does:
    which of them is newer cannot be told from their times, since copies and downloads change those.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, Any] = {}
        has_index = (self._folder / INDEX).is_file()
        if has_index and not (self._folder / SINGLE).is_file():
            self._shard_of = self._read_index()
            return
        self._shard_of = dict.fromkeys(self._open(SINGLE).keys(), SINGLE)
        unread = sorted(path.name for path in self._folder.glob("model-*-of-*.safetensors"))
        if has_index and unread:
            print(
                f"{self._folder}: {SINGLE} is read, and {INDEX} with {', '.join(unread)} is not; remove {SINGLE} to read the shards",
                flush=True,
            )

    @property
    def names(self) -> list[str]:
        """All names of the files, sorted."""
        return sorted(self._shard_of)

    def name_of(self, name: str) -> str | None:
        """The name of a tensor in the files, with or without the model's prefix; None if it is
        missing.
        """
        # 'transformer.wte.weight', or 'wte.weight' as in GPT-2's own file.
        for candidate in (name, name.partition(".")[2]):
            if candidate in self._shard_of:
                return candidate
        return None

    def find(self, name: str, dtype: Any = None) -> np.ndarray | None:
        """The tensor `name`, with or without the model's prefix, as an array of `dtype` (None: the
        file's); None if it is missing.
        """
        known = self.name_of(name)
        if known is None:
            return None
        path = self._folder / self._shard_of[known]
        shape = self.shape(known)
        # A handle of its own, which unmaps what was read when it is closed.
        with safe_open(path, framework="numpy") as file:
            if dtype is None or not shape:
                tensor: np.ndarray = file.get_tensor(known)
                return tensor if dtype is None else np.asarray(tensor, dtype)
            return _read_rows(file.get_slice(known), np.empty(shape, dtype))

    def rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of the tensor that `find` reads; KeyError if it is missing."""
        known = self.name_of(name)
        if known is None:
            raise KeyError(name)
        tensor = self._slice(known)
        return tensor[start : min(stop, tensor.get_shape()[0])]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of the tensor that `find` reads; None if it is missing."""
        known = self.name_of(name)
        return None if known is None else tuple(self._slice(known).get_shape())

    def dtype(self, name: str) -> str | None:
        """The dtype of the tensor that `find` reads, in the words of safetensors (F32, BF16, I8);
        None if it is missing.
        """
        known = self.name_of(name)
        return None if known is None else str(self._slice(known).get_dtype())

    def _slice(self, known: str) -> Any:
        return self._open(self._shard_of[known]).get_slice(known)

    def _read_index(self) -> dict[str, str]:
        named = json.loads((self._folder / INDEX).read_bytes())["weight_map"]
        # By their last parts: a name with a path would read a file outside the folder.
        shard_of = {name: Path(shard).name for name, shard in named.items()}
        # Tensors that a shard holds and the index does not name count, too, as they do for
        # transformers. Only the shards' headers are read.
        unnamed = {
            name: shard
            for shard in sorted(set(shard_of.values()))
            for name in self._open(shard).keys()  # noqa: SIM118 - no dict
        }
        return {**unnamed, **shard_of}

    def _open(self, shard: str) -> Any:
        if shard not in self._files:
            self._files[shard] = safe_open(self._folder / shard, framework="numpy")
        return self._files[shard]


def _read_rows(part: Any, array: np.ndarray) -> np.ndarray:
    """Fills `array` [rows, ...] from a slice of a file, some rows at a time: a table would be there
    twice, in both dtypes.
    """
    step = max(1, NUMBERS_AT_ONCE // max(1, array[:1].size))
    for row in range(0, len(array), step):
        stop = min(row + step, len(array))
        array[row:stop] = part[row:stop]
    return array


def _form(shape: tuple[int, ...]) -> str:
    """A tensor of floats in the words of `require_equal`: 'float[3, 4]'."""
    return f"float{list(shape)}"


def _form_in_file(tensors: NamedTensors, name: str) -> str:
    dtype = tensors.dtype(name)
    shape = tensors.shape(name) or ()
    return _form(shape) if dtype in _FLOATS else f"{dtype}{list(shape)}"


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
    """Requires that a checkpoint has the tensors of a network and no others, but for heads of other
    tasks, whose names it returns.

    Raises:
      UserError: tensors are missing, have another shape, are not floats, or are part of the network
        and not used: a bias, a norm or a block too many would change its numbers.
    """
    table = entries(config)
    shapes = flatten_dict(param_shapes(config))
    wanted = {entry.name: _file_shape(entry, shapes[entry.path].shape) for entry in table}
    embedding = next(entry.name for entry in table if entry.path == ("embedding",))
    present = [name for name in wanted if tensors.name_of(name) is not None]
    inside, outside = _unused(tensors, config, embedding, present)
    saved = {name: _form_in_file(tensors, name) for name in (*present, *inside)}
    require_equal(folder, saved, {name: _form(shape) for name, shape in wanted.items()})
    return outside


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
    unused = _require(tensors, folder, config)
    if unused:
        line = f"note: {folder}: not used: {', '.join(unused)}"
        print(printable(line), file=sys.stderr, flush=True)
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
    # What `_require` compares, once more: `published` calls this with tensors of other files.
    saved: dict[str, str] = {}
    wanted: dict[str, str] = {}
    not_finite: list[str] = []
    for entry in entries(config):
        wanted[entry.name] = _form(_file_shape(entry, shapes[entry.path].shape))
        tensor = find(entry.name)
        if tensor is None:
            continue
        saved[entry.name] = _form(tensor.shape)
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
    require_equal(source, saved, wanted)
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
