"""The reward model: an observation -> one number (Klissarov et al. 2023, section 3).

Branches for the status, the window around the hero, the map and the message are concatenated in
this order. Two linear layers and the reward head follow. The window and the map are read
transposed: the first spatial axis is the map's column, the second its row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.nethack.status import NUM_STATUS, X, Y
from motif_jax.nets import products
from motif_jax.nets.layers import (
    ACTIVATIONS,
    Dense,
    KernelAndBias,
    add_bias,
    convolve,
    flatten_channels_first,
    scale_status,
)
from motif_jax.nets.message import SHAPES, EmbeddingTable, MessageEncoder

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

# Cells of NetHack's map.
MAP_COLUMNS = 79
MAP_ROWS = 21
NUM_GLYPHS = 5976
# Channels of all convolutions but the last, and of the last.
CHANNELS = 16
LAST_CHANNELS = 8
# Side of their kernels.
WIDTH = 3

Params = Any


@dataclasses.dataclass(frozen=True)
class RewardArchitecture:
    """Inputs and sizes of a reward model; the defaults are the published ones.

    Attributes:
      message: the message's encoder, one of `nets.message.SHAPES`, or 'none'.
      status, crop, glyphs: whether to read the status, the window around the hero, and the whole
          map.
      hidden_dim: width of the encoder's output.
      embedding_dim: width of the glyph embedding.
      crop_dim: side of the window around the hero.
      num_layers: convolutions of a map branch.
      dtype: of the computation ('float32', 'bfloat16'); parameters are always float32.
      glyph_crop_centre: compat switch that places and interpolates the window as in the published
          code.
    """

    message: str = "lt_cnn"
    status: bool = False
    crop: bool = False
    glyphs: bool = False
    hidden_dim: int = 512
    embedding_dim: int = 128
    crop_dim: int = 16
    num_layers: int = 2
    dtype: str = "float32"
    glyph_crop_centre: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the model reads, among 'message', 'blstats' and 'glyphs'."""
        fields = []
        if self.message != "none":
            fields.append("message")
        if self.status or self.crop:
            fields.append("blstats")
        if self.crop or self.glyphs:
            fields.append("glyphs")
        return tuple(fields)

    @property
    def message_only(self) -> bool:
        return self.fields == ("message",)

    def problem(self) -> str | None:
        """Why the values are invalid; None if they are valid."""
        if not self.fields:
            return "at least one of message, status, crop, glyphs must be read"
        if self.crop and not self.status:
            return "the crop needs the status: set status=True"
        return None


def hero_window(architecture: RewardArchitecture, inputs: Mapping[str, jax.Array]) -> jax.Array:
    """The crop branch's glyph numbers [N, side, side], rows by columns, of blstats [N, 27] and
    glyphs integers [N, 21, 79].
    """
    blstats = inputs["blstats"]
    size = architecture.crop_dim
    if architecture.glyph_crop_centre:
        status = scale_status(blstats)
        return crop_interpolated(inputs["glyphs"], status[:, X], status[:, Y], size)
    return crop(inputs["glyphs"], blstats[:, X], blstats[:, Y], size)


class RewardModule(nn.Module):
    """Flax module of `RewardNetwork`."""

    architecture: RewardArchitecture

    def setup(self) -> None:
        architecture = self.architecture
        layers = architecture.num_layers
        dtype = DTYPES[architecture.dtype]
        if architecture.message != "none":
            self.message = MessageEncoder(SHAPES[architecture.message], dtype)
        if architecture.status:
            self.status = StatusEncoder(dtype=dtype)
        if architecture.crop or architecture.glyphs:
            self.glyph_embedding = EmbeddingTable(NUM_GLYPHS, architecture.embedding_dim)
        if architecture.crop:
            self.crop = GlyphConvolutions("crop", layers, stride=1, dtype=dtype)
        if architecture.glyphs:
            self.map = GlyphConvolutions("glyph", layers, stride=2, dtype=dtype)
        # As published: 256, then 512.
        self.fc1 = Dense(architecture.hidden_dim // 2, dtype=dtype)
        self.fc2 = Dense(architecture.hidden_dim, dtype=dtype)
        self.reward_head = Dense(1)

    def branches(
        self, inputs: Mapping[str, jax.Array], max_length: int | None = None
    ) -> dict[str, jax.Array]:
        """Branch -> features, in the order of concatenation."""
        architecture = self.architecture
        features = {}
        if architecture.status:
            features["status"] = self.status(scale_status(inputs["blstats"]))
        if architecture.crop:
            features["crop"] = self.crop(self.glyph_embedding(), hero_window(architecture, inputs))
        if architecture.glyphs:
            features["glyphs"] = self.map(self.glyph_embedding(), inputs["glyphs"])
        if architecture.message != "none":
            # A training encodes each distinct message of a batch once.
            if "message_features" in inputs:
                features["message"] = inputs["message_features"]
            else:
                features["message"] = self.message(inputs["message"], max_length)
        return features

    def encode(self, inputs: Mapping[str, jax.Array], max_length: int | None = None) -> jax.Array:
        """Encoder output [N, hidden_dim], before its activation."""
        features = jnp.concatenate(list(self.branches(inputs, max_length).values()), axis=-1)
        return self.fc2(nn.relu(self.fc1(features)))

    def __call__(self, inputs: Mapping[str, jax.Array], max_length: int | None = None) -> jax.Array:
        # The head is float32 whatever the encoder's dtype.
        hidden = nn.relu(self.encode(inputs, max_length))
        return self.reward_head(hidden.astype(jnp.float32))[:, 0]


class RewardNetwork:
    """A reward model as pure functions.

    Raises:
      ValueError: see `RewardArchitecture.problem`.
    """

    def __init__(self, architecture: RewardArchitecture) -> None:
        problem = architecture.problem()
        if problem:
            raise ValueError(problem)
        self.architecture = architecture
        self.module = RewardModule(architecture)

    def init(self, key: jax.Array) -> Params:
        """New parameters, float32: orthogonal linear layers, uniform 1-d convolutions, normal
        embeddings.
        """
        # Every input that an architecture may have; the others are ignored.
        inputs = {
            "message": jnp.zeros((1, 256), jnp.uint8),
            "blstats": jnp.zeros((1, 27), jnp.int32),
            "glyphs": jnp.zeros((1, 21, 79), jnp.int16),
        }
        return self.module.init(key, inputs)["params"]

    def reward(
        self, params: Params, inputs: Mapping[str, jax.Array], max_length: int | None = None
    ) -> jax.Array:
        """Raw rewards float32 [N].

        Args:
          inputs: an array for each of `architecture.fields`: message uint8 [N, 256], blstats
            numbers [N, 27] (unscaled), glyphs integers [N, 21, 79]. `message_features` [N, F] may
            replace message.
          max_length: bytes from this one on are zero in all messages (static; None: 256).
        """
        chex.assert_equal_shape_prefix(list(inputs.values()), 1)
        return self.module.apply({"params": params}, inputs, max_length)  # type: ignore[return-value]

    def message_features(
        self, params: Params, messages: jax.Array, max_length: int | None = None
    ) -> jax.Array:
        """Features [N, F] of messages uint8 [N, 256], the input 'message_features' of `reward`."""
        chex.assert_rank(messages, 2)
        return self.module.apply(
            {"params": params}, method=lambda net: net.message(messages, max_length)
        )  # type: ignore[return-value]


class StatusEncoder(nn.Module):
    """Scaled status float32 [N, 27] -> two linear layers with ReLU -> [N, 128]."""

    units: int = 128
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, status: jax.Array) -> jax.Array:
        chex.assert_shape(status, (None, NUM_STATUS))
        x = nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc1")(status))
        return nn.relu(Dense(self.units, dtype=self.dtype, name="blstats_fc2")(x))


def crop(glyphs: jax.Array, column: jax.Array, row: jax.Array, size: int) -> jax.Array:
    """Windows [N, size, size], rows by columns, of maps [N, 21, 79], in their dtype; cells outside
    of the map are 0.

    `column` and `row`, whole numbers [N], are the cell at [size // 2, size // 2] of the window.
    """
    chex.assert_rank([glyphs, column, row], [3, 1, 1])
    offsets = jnp.arange(size) - size // 2
    rows = row.astype(jnp.int32)[:, None, None] + offsets[:, None]
    columns = column.astype(jnp.int32)[:, None, None] + offsets
    inside = (rows >= 0) & (rows < MAP_ROWS) & (columns >= 0) & (columns < MAP_COLUMNS)
    # Cells outside are read anywhere and replaced: a negative index would read the other end.
    rows = jnp.clip(rows, 0, MAP_ROWS - 1)
    columns = jnp.clip(columns, 0, MAP_COLUMNS - 1)
    maps = jnp.arange(glyphs.shape[0])[:, None, None]
    return jnp.where(inside, jnp.asarray(glyphs)[maps, rows, columns], 0)


def crop_interpolated(glyphs: jax.Array, column: jax.Array, row: jax.Array, size: int) -> jax.Array:
    """The published window, int32: glyph numbers are interpolated bilinearly at fractional
    positions, then rounded.

    As published `column` and `row`, float32 [N], are the scaled status, so that the window is at
    the top left.
    """
    numbers = glyphs.astype(jnp.float32)
    left = jnp.floor(column)
    top = jnp.floor(row)
    right_share = (column - left)[:, None, None]
    bottom_share = (row - top)[:, None, None]

    def interpolate_columns(row: jax.Array) -> jax.Array:
        left_cells = crop(numbers, left, row, size)
        right_cells = crop(numbers, left + 1, row, size)
        return left_cells * (1 - right_share) + right_cells * right_share

    upper = interpolate_columns(top) * (1 - bottom_share)
    lower = interpolate_columns(top + 1) * bottom_share
    return jnp.round(upper + lower).astype(jnp.int32)


class GlyphConvolutions(nn.Module):
    """3x3 convolutions with padding 1 and ELU over embedded glyphs, flattened in the order channel,
    column, row.

    Attributes:
      prefix: of the layers' names, 'crop' or 'glyph'.
      num_layers: number of convolutions; they have 16 channels, the last one 8.
    """

    prefix: str
    num_layers: int = 2
    stride: int = 1
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, embedding: jax.Array, glyphs: jax.Array) -> jax.Array:
        """Features [N, F] of `glyphs`, integers [N, rows, columns], under `embedding` [5976, E]."""
        x = jnp.swapaxes(glyphs.astype(jnp.int32), 1, 2)
        for number in range(1, self.num_layers + 1):
            channels = LAST_CHANNELS if number == self.num_layers else CHANNELS
            inputs = embedding.shape[1] if number == 1 else CHANNELS
            weights = KernelAndBias(
                (WIDTH, WIDTH, inputs, channels), name=f"{self.prefix}_conv{number}"
            )()
            if number == 1:
                x = convolve_embedded(x, embedding.astype(self.dtype), weights, self.stride)
            else:
                x = convolve(x, weights, self.stride, padding=1)
            x = ACTIVATIONS["elu"](x)
        return flatten_channels_first(x)


def convolve_embedded(
    glyphs: jax.Array, embedding: jax.Array, weights: tuple[jax.Array, jax.Array], stride: int
) -> jax.Array:
    """`convolve` with padding 1 of glyphs int32 [N, H, W], embedded by [G, E], and a kernel
    [3, 3, E, O].

    Each of the 9 neighbours looks up a row of (embedding x kernel), which has 16 channels where the
    embedding has 128. The result is [N, ceil(H / stride), ceil(W / stride), O] in the dtype of
    `embedding`.
    """
    kernel, bias = weights
    num_glyphs = len(embedding)
    # In float32, so that gradients of frequent glyphs are summed in float32.
    table = products.einsum("ge,hweo->hwgo", embedding, kernel.astype(embedding.dtype)).astype(
        jnp.float32
    )
    # A glyph more, of zeros, is the padding.
    table = jnp.pad(table, ((0, 0), (0, 0), (0, 1), (0, 0))).reshape(-1, kernel.shape[-1])
    padded = jnp.pad(glyphs, ((0, 0), (1, 1), (1, 1)), constant_values=num_glyphs)
    height, width = glyphs.shape[1:]
    total = jnp.zeros((), table.dtype)
    for i in range(WIDTH):
        for j in range(WIDTH):
            # Of each output the neighbour at (i, j), whose part of the kernel has rows of its own.
            cells = padded[:, i : i + height : stride, j : j + width : stride]
            first_row = (i * WIDTH + j) * (num_glyphs + 1)
            total = total + jnp.take(table, cells + first_row, axis=0)
    return add_bias(total.astype(embedding.dtype), bias)
