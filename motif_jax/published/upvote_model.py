"""Reads the published upvote model, model.pkl, without running its code: a RoBERTa with its pooler
and a head.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.reddit.text_scorer import LIKED
from motif_jax.lm.config import ModelConfig
from motif_jax.published import transformers_parts
from motif_jax.published.transformers_parts import linear


class PublishedScorer(NamedTuple):
    """A checkpoint's model config, model parameters and head parameters, numpy arrays."""

    config: ModelConfig
    params: Any
    heads: Any


def read(path: str | Path, heads: int = 0) -> PublishedScorer:
    """Reads model.pkl, a RoBERTa of attention `heads` (0: width / 64) and two layers. Raises
    UserError: it is none.
    """
    with transformers_parts.reading(path, "upvote model") as tensors:
        trunk = transformers_parts.part(tensors, "model.")
        head = {
            "hidden_0": linear(trunk, "pooler.dense"),
            "hidden_1": linear(tensors, "layers.0"),
            "output": linear(tensors, "layers.2"),
        }
        values = _config(trunk, heads)
        # `position_ids` is a buffer of transformers, which counts upwards.
        named = {
            f"roberta.{name}": array for name, array in trunk.items() if "position_ids" not in name
        }
        config, params = transformers_parts.model(values, named, "its RoBERTa")
        shapes = [(part["kernel"].shape, part["bias"].shape) for part in head.values()]
        sizes = (config.width, config.width, 2 * config.width, 1)
        if shapes != [
            ((inside, outside), (outside,)) for inside, outside in itertools.pairwise(sizes)
        ]:
            raise UserError("its head does not fit its RoBERTa")
    return PublishedScorer(config, params, {LIKED: head})


def _config(trunk: Mapping[str, np.ndarray], heads: int) -> dict[str, Any]:
    vocabulary, width = trunk["embeddings.word_embeddings.weight"].shape
    return {
        "model_type": "roberta",
        "architectures": ["RobertaModel"],
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": transformers_parts.layers(trunk, r"encoder\.layer\.(\d+)\."),
        "num_attention_heads": transformers_parts.heads_of(width, heads),
        "intermediate_size": trunk["encoder.layer.0.intermediate.dense.bias"].shape[0],
        "max_position_embeddings": trunk["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": trunk["embeddings.token_type_embeddings.weight"].shape[0],
        # No tensor tells these: they are RoBERTa's.
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
