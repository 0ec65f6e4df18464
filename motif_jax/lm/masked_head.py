"""RoBERTa's head for masked tokens, as in transformers: a layer, a norm, and the embedding table
with a bias.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from motif_jax.core import tensor_files
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.lm import heads
from motif_jax.lm.config import FILE, ModelConfig
from motif_jax.lm.weights import SINGLE, Tensors, is_copy
from motif_jax.nets import products

# Parameter -> tensor; the kernel is transposed in the file.
_NAMES = {
    "kernel": "lm_head.dense.weight",
    "bias": "lm_head.dense.bias",
    "norm_scale": "lm_head.layer_norm.weight",
    "norm_bias": "lm_head.layer_norm.bias",
    "token_bias": "lm_head.bias",
}
# A copy of the embedding that files may have.
_TABLE = "lm_head.decoder.weight"
_EMBEDDING = "roberta.embeddings.word_embeddings.weight"


def init(key: jax.Array, config: ModelConfig) -> dict[str, jax.Array]:
    """Fresh parameters, float32."""
    return {
        "kernel": config.initializer * jax.random.normal(key, (config.width, config.width)),
        "bias": jnp.zeros(config.width),
        "norm_scale": jnp.ones(config.width),
        "norm_bias": jnp.zeros(config.width),
        "token_bias": jnp.zeros(config.vocab_size),
    }


def logits(head: Any, table: jax.Array, states: jax.Array, epsilon: float) -> jax.Array:
    """Logits float32 [..., V] of states [..., D] by the embedding table [V, D]; products in the
    dtype of the states.
    """
    kernel = head["kernel"].astype(states.dtype)
    x = products.einsum_float32("...d,de->...e", states, kernel) + head["bias"]
    layer = {"scale": head["norm_scale"], "bias": head["norm_bias"]}
    # The activation, then the norm, as in transformers' RobertaLMHead; the norm in float32.
    x = heads.norm(layer, jax.nn.gelu(x, approximate=False), epsilon).astype(states.dtype)
    table = table.astype(states.dtype)
    return products.einsum_float32("...d,vd->...v", x, table) + head["token_bias"]


def has_head(folder: str | Path) -> bool:
    """Whether a checkpoint folder has the head.

    Raises:
      UserError: it has a table of its own beside the embedding.
    """
    tensors = Tensors(folder)
    table = tensors.name_of(_TABLE)
    embedding = tensors.name_of(_EMBEDDING)
    if table is not None and not is_copy(tensors, table, embedding):
        raise UserError(
            f"{folder}: {table} differs from the embedding: a head for masked tokens with a table of its own is not supported"
        )
    return table is not None or any(tensors.name_of(name) for name in _NAMES.values())


def load(folder: str | Path) -> dict[str, np.ndarray] | None:
    """The head of a checkpoint folder, float32; None where it has none, UserError as of
    `has_head`.
    """
    if not has_head(folder):
        return None
    tensors = Tensors(folder)
    head = {}
    for name, tensor_name in _NAMES.items():
        value = tensors.find(tensor_name, np.float32)
        assert value is not None, f"{folder} has no {tensor_name}"
        head[name] = value.T if name == "kernel" else value
    return head


def add(folder: Path, head: Any) -> None:
    """Adds the head to the weights in its model's folder, which transformers then opens as a masked
    language model.
    """
    # `folder.write` has just written it: a RoBERTa fits one shard.
    tensors = load_file(folder / SINGLE)
    for name, tensor_name in _NAMES.items():
        value = np.asarray(head[name])
        tensors[tensor_name] = np.ascontiguousarray(value.T if name == "kernel" else value)
    tensor_files.save(tensors, folder / SINGLE, metadata={"format": "pt"})
    values = read_json(folder / FILE, "write the folder again")
    # By this name transformers opens the folder with the head.
    atomic_write_json(folder / FILE, {**values, "architectures": ["RobertaForMaskedLM"]})
