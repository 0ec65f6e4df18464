"""Draws fresh parameters, by a program that holds one block however many the model has.

The program of a plain `init` draws the kernels of all blocks one by one: of Flan-T5-large 442
draws, for which a GPU's compiler takes minutes before anything else begins.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from motif_jax.lm import dropout, linear
from motif_jax.lm.network import LanguageNetwork

_FIRST = "block_0"
# Of a linear layer's parameters the kernel is the first that flax makes a key for.
_KERNEL = 1


class _Kernel(NamedTuple):
    """How the kernel of a linear layer is drawn: `draw(key, shape)`."""

    draw: Callable[..., jax.Array]
    shape: tuple[int, int]


@functools.partial(jax.jit, static_argnums=0)
def plain(network: LanguageNetwork, key: jax.Array) -> Any:
    """Fresh parameters with a tree for each block."""
    return network.init(key, jnp.zeros((1, 2), jnp.int32))["params"]


@functools.partial(jax.jit, static_argnums=0)
def stacked(network: LanguageNetwork, key: jax.Array) -> Any:
    """The same numbers as `plain` with stacks of blocks (`block_stack`)."""
    config = network.config
    sides = {"encoder": config.encoder_layers, "decoder": config.layers}
    if not config.has_decoder:
        sides = {"encoder": config.layers}
    # One block is made for real: its tree, its constants, and how each kernel is drawn.
    one_block = dataclasses.replace(config, layers=1, encoder_layers=min(1, config.encoder_layers))
    kernels: dict[linear.Path, _Kernel] = {}

    def record_kernel(call: Callable[..., Any], arguments: Any, keywords: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, nn.Dense) and context.method_name == "__call__":
            kernels[module.path] = _Kernel(
                module.kernel_init, (arguments[0].shape[-1], module.features)
            )
        return call(*arguments, **keywords)

    # Its kernels are thrown away; those of all blocks are drawn below, by the keys that flax would
    # use.
    with nn.intercept_methods(record_kernel):
        params = network.clone(config=one_block).init(key, jnp.zeros((1, 2), jnp.int32))["params"]

    flat = {}
    for path, leaf in flatten_dict(params).items():
        if _FIRST not in path:
            flat[path] = leaf
            continue
        side, _, *inside = path
        layers = sides[side]
        where = (side, f"blocks_0_{layers}", *inside)
        kernel = kernels.get(path[:-1]) if path[-1] == "kernel" else None
        if kernel is None:
            # Scales and biases begin with the same constant in all blocks.
            flat[where] = jnp.broadcast_to(leaf, (layers, *leaf.shape))
        else:
            layer_paths = [(side, f"block_{block}", *inside[:-1]) for block in range(layers)]
            flat[where] = _draw_kernels(kernel, key, layer_paths)
    return unflatten_dict(flat)


def _draw_kernels(kernel: _Kernel, key: jax.Array, paths: list[linear.Path]) -> jax.Array:
    """The kernels [L, in, out] of the linear layers at L paths."""
    numbers = np.array([dropout.folded_number((*path, _KERNEL)) for path in paths], np.uint32)
    # One draw in a loop, so that the program is as long for 48 blocks as for one.
    return jax.lax.map(
        lambda number: kernel.draw(jax.random.fold_in(key, number), kernel.shape), numbers
    )
