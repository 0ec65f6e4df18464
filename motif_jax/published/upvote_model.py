"""The published upvote model, model.pkl: a RoBERTa with its pooler and a head, read without running anything of the file."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from motif_jax.language import folder as folders
from motif_jax.language.config import ModelConfig
from motif_jax.language.text_scorer import LIKED
from motif_jax.language.weights import SINGLE
from motif_jax.published import torch_file
from motif_jax.support import tempdirs
from motif_jax.support.errors import UserError
from motif_jax.support.files import atomic_write_json

_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
_HEAD_WIDTH = 64


class PublishedScorer(NamedTuple):
    """The contents of a checkpoint: the model's config and parameters, and the head's, numpy arrays."""

    config: ModelConfig
    params: Any
    heads: Any


def read(path: str | Path, heads: int = 0) -> PublishedScorer:
    """Reads a checkpoint.

    Args:
      path: of model.pkl, with `model.*` (RoBERTa), `layers.0` and `layers.2`.
      heads: of attention; 0: one for 64 numbers of the width, as RoBERTa has.

    Raises:
      UserError: it is damaged, or no such checkpoint.
    """
    tensors = {
        name.removeprefix("module."): np.asarray(array)
        for name, array in torch_file.tensors(torch_file.read_checkpoint(path))
    }
    trunk = {
        name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")
    }
    try:
        head = {
            "hidden_0": _layer(trunk, "pooler.dense"),
            "hidden_1": _layer(tensors, "layers.0"),
            "output": _layer(tensors, "layers.2"),
        }
        values = _config(trunk, heads)
    except (KeyError, IndexError, ValueError) as error:
        raise UserError(
            f"{path} is not a checkpoint of the published upvote model ({type(error).__name__}: {error})"
        ) from None
    width = values["hidden_size"]
    if not values["num_attention_heads"] or width % values["num_attention_heads"]:
        raise UserError(f"{path}: a width of {width} does not divide into heads: give config.heads")
    shapes = [(part["kernel"].shape, part["bias"].shape) for part in head.values()]
    sizes = (width, width, 2 * width, 1)
    if shapes != [((inside, outside), (outside,)) for inside, outside in itertools.pairwise(sizes)]:
        raise UserError(f"{path}: its head does not fit its RoBERTa")
    # In the folder of this process: where it is killed the next command removes what it leaves.
    with tempdirs.own_folders(), tempfile.TemporaryDirectory() as folder:
        named = {f"roberta.{name}": np.ascontiguousarray(np.asarray(array, np.float32)) for name, array in trunk.items() if "position_ids" not in name}  # fmt: skip
        save_file(named, Path(folder) / SINGLE)
        atomic_write_json(Path(folder) / "config.json", values)
        try:
            whole = folders.read(folder)
        except UserError as error:
            raise UserError(f"{path}: {str(error).replace(folder, 'its RoBERTa')}") from None
    return PublishedScorer(whole.config, whole.params, {LIKED: head})


def _layer(tensors: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """A linear layer; PyTorch has kernels as [out, in]."""
    kernel, bias = (np.asarray(tensors[f"{name}.{part}"], np.float32) for part in ("weight", "bias"))
    return {"kernel": np.ascontiguousarray(kernel.T), "bias": bias}


def _config(trunk: Mapping[str, np.ndarray], heads: int) -> dict[str, Any]:
    vocabulary, width = trunk["embeddings.word_embeddings.weight"].shape
    return {
        "model_type": "roberta",
        "architectures": ["RobertaModel"],
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": 1 + max(int(found[1]) for name in trunk if (found := _LAYER.match(name))),
        "num_attention_heads": heads or width // _HEAD_WIDTH,
        "intermediate_size": trunk["encoder.layer.0.intermediate.dense.bias"].shape[0],
        "max_position_embeddings": trunk["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": trunk["embeddings.token_type_embeddings.weight"].shape[0],
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
