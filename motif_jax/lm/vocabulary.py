"""Resizes a model's vocabulary: its embeddings, and its head if that is not tied."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.core.errors import UserError
from motif_jax.lm.config import ModelConfig


def extend(
    config: ModelConfig, params: Any, size: int, key: jax.Array, like: int | None = None
) -> tuple[ModelConfig, Any]:
    """Adds rows for new tokens; old rows and their logits stay as they are.

    A new row is that of the token `like`, or the mean of the old ones, plus noise with a tenth of
    their spread. At the mean an untrained token is neither the most likely nor out of reach (Hewitt
    2021, on new word embeddings of pretrained models), but the mean of a table is a word that no
    text has: delimiters learn sooner from the row of the end of text.

    Arrays that stay are shared. UserError where the model has more than `size` tokens.
    """
    more = size - config.vocab_size
    if more < 0:
        raise UserError(
            f"a vocabulary of {size} tokens is smaller than the model's, which has {config.vocab_size}"
        )
    if more == 0:
        return config, params
    embedding, head = jax.random.split(key)
    grown = {**params, "embedding": _more_rows(params["embedding"], more, embedding, like)}
    if not config.tied:
        kernel = jnp.asarray(params["head"]["kernel"])
        grown["head"] = {**params["head"], "kernel": _more_rows(kernel.T, more, head, like).T}
    return dataclasses.replace(config, vocab_size=size), grown


def cut(config: ModelConfig, params: Any, size: int) -> tuple[ModelConfig, Any]:
    """Keeps the first `size` rows, since a checkpoint may have more rows than its tokenizer has
    tokens; other arrays are shared.
    """
    if size == config.vocab_size:
        return config, params
    fewer = {**params, "embedding": params["embedding"][:size]}
    if not config.tied:
        fewer["head"] = {**params["head"], "kernel": params["head"]["kernel"][:, :size]}
    return dataclasses.replace(config, vocab_size=size), fewer


def _more_rows(table: Any, more: int, key: jax.Array, like: int | None) -> jax.Array:
    table = jnp.asarray(table)
    wide = table.astype(jnp.float32)
    centre = wide.mean(axis=0) if like is None else wide[like]
    # In float32, since the mean of a large table in bfloat16 is coarse.
    fresh = centre + 0.1 * wide.std(axis=0) * jax.random.normal(key, (more, table.shape[1]))
    return jnp.concatenate([table, fresh.astype(table.dtype)])
