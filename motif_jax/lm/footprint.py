"""Computes the memory of training on each device from shapes alone.

The arrays that a backward pass keeps are counted in the traced program. Layers are alike, and so are rows: traces of one and two layers
and of one and two rows give the count for any model and batch. The compiler's temporary buffers are not counted: leave a tenth to spare.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import Literal

from motif_jax.core.devices.parameter_sharding import AXES, BATCH, DATA, split_bytes
from motif_jax.core.errors import UserError
from motif_jax.core.training import block_stack
from motif_jax.lm.chunks import log_probs
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.model import LanguageModel, param_shapes
from motif_jax.lm.network import Remat

ONE_DEVICE = dict.fromkeys(AXES, 1)


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes on each device.

    Attributes:
      activations: arrays that the backward pass keeps, and working memory of one layer and one chunk of logits.
    """

    parameters: int
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        return sum(dataclasses.asdict(self).values())

    def __str__(self) -> str:
        parts = [f"{name} {value / 1e9:.2f}" for name, value in dataclasses.asdict(self).items() if value]
        return f"{self.total / 1e9:.2f} GB a device ({', '.join(parts)})"

    def require(self, available: int | None, remedy: str) -> None:
        """Raises UserError where more than `available` bytes a device are needed; None: unknown, no check."""
        if available is not None and self.total > available:
            raise UserError(f"this takes {self}, and a device has {available / 1e9:.2f} GB: {remedy}")


def device_memory() -> int | None:
    """Bytes of the first device that programs may use; None where it does not report them (a CPU)."""
    found = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return None if found is None else int(found)


def of_training(
    model: LanguageModel,
    batch: int,
    length: int,
    written: int = 0,
    trained: Any = None,
    chunk: int | None = None,
    sizes: Mapping[str, int] = ONE_DEVICE,
    params_dtype: Any = jnp.float32,
) -> Footprint:
    """Memory of a training step with Adam.

    Args:
      batch: rows of a micro-batch, over all devices.
      length: tokens of a row (of an encoder's input, where there is an encoder).
      written: tokens of a row that a decoder behind an encoder predicts.
      trained: shapes of low-rank additions, which alone are trained; None: all parameters are.
      chunk: tokens whose logits are in memory at once, see `chunks`; None: all.
      sizes: devices along the axes of the mesh, see `sharding`.
    """
    config = model.config
    params = _params(config, params_dtype)
    learned = params if trained is None else trained
    state = jax.eval_shape(optax.adam(1e-3).init, learned)
    rows = -(-batch // math.prod(sizes[axis] for axis in BATCH))
    kept = functools.partial(_kept_by_layers, config, model.dtype, length, written, chunk is not None)
    fixed, a_row = kept(model.remat, model.dropout is not None)
    layers = config.layers + config.encoder_layers
    if model.remat:  # the backward pass computes one layer at a time again
        plain_fixed, plain_row = kept(False, False)
        fixed += max(0, plain_fixed - fixed) // layers
        a_row += max(0, plain_row - a_row) // layers
    if model.looped:
        # A step's stacks of the blocks' moments, and of their parameters, which are among the kept arrays where no cast follows.
        cast = jnp.dtype(params_dtype) != jnp.dtype(model.dtype)
        fixed += _block_bytes(state) + (_block_bytes(params) if cast else 0)
    tokens = rows * (written if config.encoder_layers else length)
    # A chunk's logits with their softmax and gradient; without chunks the kept arrays include them.
    logits = 4 * config.vocab_size * (tokens if chunk is None else 3 * min(chunk, tokens))
    # Weights in the dtype of the computation are split as the parameters are.
    fixed = fixed * sizes[DATA] // math.prod(sizes.values())
    held = (split_bytes(params, sizes), split_bytes(learned, sizes), split_bytes(state, sizes))
    return Footprint(*held, fixed + rows * a_row + logits)


def _params(config: ModelConfig, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), param_shapes(config))


def _block_bytes(tree: Any) -> int:
    """Bytes of all blocks in a tree of shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(block_stack.stacked, tree))
    return sum(leaf.size * leaf.dtype.itemsize for path, leaf in leaves if block_stack.is_stacked(path))


@functools.cache
def _kept_by_layers(
    config: ModelConfig, dtype: Any, length: int, written: int, chunked: bool, remat: Remat, drops: bool
) -> tuple[int, int]:
    """Bytes that a backward pass keeps: a fixed part, and a part for each row."""
    model = LanguageModel(config, dtype, remat, jax.random.key(0) if drops else None)

    def kept(rows: int, layers: int = 1, encoder_layers: int = 1) -> int:
        encoder_layers = min(encoder_layers, config.encoder_layers)
        few = dataclasses.replace(config, layers=layers, encoder_layers=encoder_layers)
        smaller = dataclasses.replace(model, config=few)

        def loss(params: Any) -> jax.Array:
            tokens = jnp.zeros((rows, length), jnp.int32)
            states, prompt = smaller.prefill(params, tokens, tokens == 0)
            after = states.after
            if encoder_layers:
                tokens = jnp.zeros((rows, 1, written), jnp.int32)
                after = smaller.extend(params, prompt, tokens, tokens == 0)[0].after
            if config.has_decoder:
                after = log_probs(smaller, params, after, tokens, 1 if chunked else None)
            return after.sum()

        return kept_bytes(loss, _params(few, jnp.float32))

    found = []
    for rows in (1, 2):
        one = kept(rows)
        total = one + (config.layers - 1) * (kept(rows, layers=2) - one)
        if config.encoder_layers:
            total += (config.encoder_layers - 1) * (kept(rows, encoder_layers=2) - one)
        found.append(total)
    return max(0, 2 * found[0] - found[1]), found[1] - found[0]


def kept_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that the backward pass of a function keeps besides its arguments, trees of arrays or shapes."""
    traced = jax.make_jaxpr(lambda *inner: jax.tree.leaves(jax.vjp(function, *inner)[1]))(*arguments)
    given = set(traced.jaxpr.invars)
    kept = {v for v in traced.jaxpr.outvars if not isinstance(v, Literal) and v not in given}
    return sum(math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in kept)  # type: ignore[attr-defined]
