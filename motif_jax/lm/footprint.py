"""Computes the memory of training on each device from shapes alone.

The arrays that a backward pass keeps are counted in the traced program. Layers are alike, and so
are rows: traces of one and two layers and of one and two rows give the count for any model and
batch. The compiler's temporary buffers are not counted: leave a tenth to spare.
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

from motif_jax.core.devices import platforms
from motif_jax.core.devices.parameter_sharding import AXES, BATCH, DATA, split_bytes
from motif_jax.core.errors import UserError
from motif_jax.core.training import block_stack
from motif_jax.lm.block_loop import Remat
from motif_jax.lm.chunks import log_probs
from motif_jax.lm.config import ModelConfig
from motif_jax.lm.model import LanguageModel, param_shapes

ONE_DEVICE = dict.fromkeys(AXES, 1)


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes on each device.

    Attributes:
      activations: arrays that the backward pass keeps, and working memory of one layer and one
          chunk of logits.
    """

    parameters: int
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        return sum(dataclasses.asdict(self).values())

    def __str__(self) -> str:
        parts = [
            f"{name} {value / 1e9:.2f}" for name, value in dataclasses.asdict(self).items() if value
        ]
        return f"{self.total / 1e9:.2f} GB a device ({', '.join(parts)})"

    def require(self, available: int | None, remedy: str) -> None:
        """Raises UserError where more than `available` bytes a device are needed; None: unknown, no
        check.
        """
        if available is not None and self.total > available:
            raise UserError(
                f"this takes {self}, and a device has {available / 1e9:.2f} GB: {remedy}"
            )


def device_memory() -> int | None:
    """Bytes of the first device that programs may use; None where it does not report them (a
    CPU).
    """
    statistics = jax.local_devices()[0].memory_stats() or {}
    limit = statistics.get("bytes_limit")
    return None if limit is None else int(limit)


def of_training(
    model: LanguageModel,
    batch: int,
    length: int,
    written: int = 0,
    trained: Any = None,
    chunk: int | None = None,
    sizes: Mapping[str, int] = ONE_DEVICE,
    params_dtype: Any = jnp.float32,
    platform: str | None = None,
) -> Footprint:
    """Memory of a training step with Adam.

    Args:
      batch: rows of a micro-batch, over all devices.
      length: tokens of a row (of an encoder's input, where there is an encoder).
      written: tokens of a row that a decoder after an encoder predicts.
      trained: shapes of low-rank additions, which alone are trained; None: all parameters are.
      chunk: tokens whose logits are in memory at once, see `chunks`; None: all.
      sizes: devices along the axes of the mesh, see `sharding`.
      platform: of the devices, 'cpu' or 'gpu', whose programs keep different arrays; None: this
          machine's.
    """
    with platforms.planned(platform or platforms.traced()):
        return _of_training(model, batch, length, written, trained, chunk, sizes, params_dtype)


def _of_training(
    model: LanguageModel,
    batch: int,
    length: int,
    written: int,
    trained: Any,
    chunk: int | None,
    sizes: Mapping[str, int],
    params_dtype: Any,
) -> Footprint:
    config = model.config
    params = _params(config, params_dtype)
    learned = params if trained is None else trained
    state = jax.eval_shape(optax.adam(1e-3).init, learned)
    rows = math.ceil(batch / math.prod(sizes[axis] for axis in BATCH))

    count = functools.partial(
        _saved_by_layers,
        platforms.traced(),
        model.looped,
        config,
        model.dtype,
        length,
        written,
        chunk is not None,
    )
    # What the backward pass keeps, traced with one and two layers and rows.
    fixed, per_row = count(model.remat, model.dropout is not None)
    layers = config.layers + config.encoder_layers
    if model.remat:
        # The backward pass computes one layer at a time again.
        plain_fixed, plain_per_row = count(False, False)
        fixed += max(0, plain_fixed - fixed) // layers
        per_row += max(0, plain_per_row - per_row) // layers
    if model.looped:
        # A step's stacks of the blocks' moments, and of their parameters, which are among the saved
        # arrays where no cast follows.
        fixed += _block_bytes(state)
        if jnp.dtype(params_dtype) != jnp.dtype(model.dtype):
            fixed += _block_bytes(params)
    # Weights in the dtype of the computation are split as the parameters are.
    fixed = fixed * sizes[DATA] // math.prod(sizes.values())

    tokens = rows * (written if config.encoder_layers else length)
    # A chunk's logits with their softmax and gradient; without chunks the saved arrays include
    # them.
    logit_rows = tokens if chunk is None else 3 * min(chunk, tokens)
    # Float32, 4 bytes each.
    logits = 4 * config.vocab_size * logit_rows

    return Footprint(
        parameters=split_bytes(params, sizes),
        gradients=split_bytes(learned, sizes),
        optimizer=split_bytes(state, sizes),
        activations=fixed + rows * per_row + logits,
    )


def _params(config: ModelConfig, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), param_shapes(config))


def _block_bytes(tree: Any) -> int:
    """Bytes of all blocks in a tree of shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(block_stack.stacked, tree))
    return sum(
        leaf.size * leaf.dtype.itemsize for path, leaf in leaves if block_stack.is_stacked(path)
    )


@functools.cache
def _saved_by_layers(
    platform: str,
    looped: bool,
    config: ModelConfig,
    dtype: Any,
    length: int,
    written: int,
    chunked: bool,
    remat: Remat,
    drops: bool,
) -> tuple[int, int]:
    """Bytes that are saved for a backward pass on a platform, that of `platforms.traced`: a fixed
    part, and a part for each row.
    """
    assert platform == platforms.traced()
    model = LanguageModel(config, dtype, remat, jax.random.key(0) if drops else None, looped)

    def saved(rows: int, layers: int = 1, encoder_layers: int = 1) -> int:
        """Bytes for so many rows in a model of so few layers."""
        encoder_layers = min(encoder_layers, config.encoder_layers)
        small_config = dataclasses.replace(config, layers=layers, encoder_layers=encoder_layers)
        small_model = dataclasses.replace(model, config=small_config)

        def loss(params: Any) -> jax.Array:
            tokens = jnp.zeros((rows, length), jnp.int32)
            states, prompt = small_model.prefill(params, tokens, tokens == 0)
            after = states.after
            if encoder_layers:
                tokens = jnp.zeros((rows, 1, written), jnp.int32)
                decoder_states, _ = small_model.extend(params, prompt, tokens, tokens == 0)
                after = decoder_states.after
            if config.has_decoder:
                after = log_probs(small_model, params, after, tokens, 1 if chunked else None)
            return after.sum()

        return saved_bytes(loss, _params(small_config, jnp.float32))

    def saved_by_all_layers(rows: int) -> int:
        # Layers are alike: what a second one adds, each further one adds.
        one_layer = saved(rows)
        total = one_layer + (config.layers - 1) * (saved(rows, layers=2) - one_layer)
        if config.encoder_layers:
            total += (config.encoder_layers - 1) * (saved(rows, encoder_layers=2) - one_layer)
        return total

    one_row = saved_by_all_layers(1)
    two_rows = saved_by_all_layers(2)
    per_row = two_rows - one_row
    return max(0, one_row - per_row), per_row


def saved_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Bytes that a function saves for its backward pass besides its arguments, trees of arrays or
    shapes.
    """

    def residuals(*inner: Any) -> list[Any]:
        _, backward = jax.vjp(function, *inner)
        return jax.tree.leaves(backward)

    program = jax.make_jaxpr(residuals)(*arguments).jaxpr
    inputs = set(program.invars)
    # A set, since an array may be an output several times. Literals cannot be hashed, and take no
    # memory.
    outputs = {
        variable for variable in program.outvars if not isinstance(variable, Literal)
    } - inputs
    return sum(
        math.prod(variable.aval.shape) * variable.aval.dtype.itemsize for variable in outputs
    )  # type: ignore[attr-defined]
