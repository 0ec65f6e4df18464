"""Character networks that read a NetHack message: 256 bytes, padded with zeros.

Most of a message is padding. All activation columns whose receptive field is in the padding are
equal, so one of them is computed and repeated if a layer needs it. At most the first `max_length`
bytes are non-zero; values and gradients do not depend on it.
"""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.nets.layers import Dense, KernelAndBias, convolve

POOL = 3  # columns of a maximum


@dataclasses.dataclass(frozen=True)
class MessageShape:
    """Sizes of one character network.

    Attributes:
      num_bytes: number of leading bytes that are read.
      embedding: channels of the byte embedding.
      convolutions: (channels, width, whether a maximum over 3 columns follows) of each layer.
      linear: units of the linear layers after flattening; the last number is the feature size.
    """

    num_bytes: int
    embedding: int
    convolutions: tuple[tuple[int, int, bool], ...]
    linear: tuple[int, ...]


# The published models lt_cnn and lt_cnn_small.
SHAPES = {
    "lt_cnn": MessageShape(
        256,
        32,
        (
            (64, 7, True),
            (64, 7, True),
            (64, 3, False),
            (64, 3, False),
            (64, 3, False),
            (64, 3, True),
        ),
        (128,),
    ),
    "lt_cnn_small": MessageShape(128, 16, ((32, 7, True), (32, 7, True), (32, 3, True)), (32, 32)),
}


class EmbeddingTable(nn.Module):
    """An embedding's table float32 [entries, features], initially standard normal; callers do the
    lookup.
    """

    entries: int
    features: int

    @nn.compact
    def __call__(self) -> jax.Array:
        return self.param("embedding", nn.initializers.normal(1.0), (self.entries, self.features))


class MessageEncoder(nn.Module):
    """Bytes -> embedding -> convolutions with ReLU and maxima over 3 -> linear layers with ReLU.

    Attributes:
      orthogonal: whether linear layers start orthogonal, or uniform in +-1 / sqrt(inputs),
          PyTorch's default.
    """

    shape: MessageShape
    dtype: jnp.dtype = jnp.float32
    orthogonal: bool = True

    @nn.compact
    def __call__(self, messages: jax.Array, max_length: int | None = None) -> jax.Array:
        """Returns features [N, F] of `messages` uint8 [N, 256], whose bytes from `max_length` on
        are zero.
        """
        shape = self.shape
        # Columns of the layer's full input; `x` holds the first ones, and its last one stands for
        # all after it.
        columns = shape.num_bytes
        # One column of padding stays, which represents the rest.
        size = columns if max_length is None else min(columns, max_length + 1)

        embedding = EmbeddingTable(256, shape.embedding, name="embedding")()
        # The padding byte's row counts as zero and gets no gradient.
        embedding = jnp.asarray(embedding).at[0].set(0.0)
        # Cast after the lookup, so that gradients of frequent bytes are summed in float32.
        x = jnp.take(embedding, messages[:, :size].astype(jnp.int32), axis=0).astype(self.dtype)
        for number, (channels, width, pooled) in enumerate(shape.convolutions, start=1):
            columns = columns - width + 1
            x = _extend(x, min(x.shape[1], columns) + width - 1)
            limit = 1.0 / math.sqrt(width * x.shape[-1])  # PyTorch's default
            x = convolve(
                x, KernelAndBias((width, x.shape[-1], channels), limit, name=f"conv{number}")()
            )
            if pooled:
                columns = columns // POOL
                x = _max_pool(x, min(math.ceil((x.shape[1] - 1) / POOL) + 1, columns))
            # After the maximum, which commutes with ReLU and leaves a third of the columns.
            x = nn.relu(x)

        x = _extend(x, columns)
        # The published order of the flattened features: channel, then column.
        x = jnp.swapaxes(x, 1, 2).reshape(x.shape[0], -1)
        for number, units in enumerate(shape.linear, start=1):
            name = "message_fc" if len(shape.linear) == 1 else f"message_fc{number}"
            linear_limit = None if self.orthogonal else 1.0 / math.sqrt(x.shape[-1])
            x = nn.relu(Dense(units, dtype=self.dtype, limit=linear_limit, name=name)(x))
        return x


def _extend(x: jax.Array, columns: int) -> jax.Array:
    """Cuts [N, T, C] to `columns` columns, or extends it by repeating the last one."""
    if columns <= x.shape[1]:
        return x[:, :columns]
    return jnp.pad(x, ((0, 0), (0, columns - x.shape[1]), (0, 0)), mode="edge")


def _max_pool(x: jax.Array, columns: int) -> jax.Array:
    """Maxima of `columns` groups of 3 columns; three strided views are far faster on CPU than a
    window.
    """
    x = _extend(x, columns * POOL)
    return jnp.maximum(jnp.maximum(x[:, 0::POOL], x[:, 1::POOL]), x[:, 2::POOL])
