"""Weights that stay in bfloat16 and are multiplied in float32: half as large, where a device multiplies bfloat16 slowly.

XLA's CPU backend without bfloat16 units (AVX2) turns every factor of a bfloat16 product into float32 and its result back. Here only weights
are turned, and states stay in float32. Answers are those of a float32 model with the same (rounded) weights.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.lm.model import LanguageModel


def multiplied_in_float32(model: LanguageModel, params: dict[str, Any]) -> tuple[LanguageModel, Any]:
    """A decoder with computation in float32, and its parameters: matrices keep their dtype, vectors become float32.

    Vectors are norms and biases, which are small, and which layers add in the dtype of the parameter. Blocks run in a loop, which turns the
    matrices of one block at a time: of blocks one after the other XLA turns all matrices first (8.8 GB for 3.5 GB of weights). `params` are
    used up: each weight leaves the dicts when it is stacked, so that the weights are not held twice.
    """
    _stack_blocks(params["decoder"], model.config.layers)
    return dataclasses.replace(model, dtype=jnp.float32, loop=True), params


def _stack_blocks(decoder: dict[str, Any], layers: int) -> None:
    """Puts the blocks' parameters together, in the form of `block_stack`, and makes all vectors float32."""
    blocks = [flatten_dict(decoder.pop(f"block_{layer}")) for layer in range(layers)]
    stacks = {}
    for path in list(blocks[0]):
        stacks[path] = jnp.stack([_wide_vector(block.pop(path)) for block in blocks])
    wide = jax.tree.map(_wide_vector, decoder)
    decoder.clear()
    decoder.update(wide)
    decoder[f"blocks_0_{layers}"] = unflatten_dict(stacks)


def _wide_vector(leaf: Any) -> jax.Array:
    return jnp.asarray(leaf, jnp.float32 if leaf.ndim == 1 else leaf.dtype)
