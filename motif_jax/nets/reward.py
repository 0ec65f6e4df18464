"""The reward model: an observation -> one number (Klissarov et al. 2023, section 3).

Branches for the status, the window around the hero, the map and the message are concatenated in
this order. Two linear layers and the reward head follow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.nethack.status import X, Y
from motif_jax.nets import glyphs as glyph_layers
from motif_jax.nets.layers import Dense
from motif_jax.nets.message import SHAPES, EmbeddingTable, MessageEncoder
from motif_jax.nets.status import StatusEncoder, scale_status

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

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
        return glyph_layers.crop_interpolated(inputs["glyphs"], status[:, X], status[:, Y], size)
    return glyph_layers.crop(inputs["glyphs"], blstats[:, X], blstats[:, Y], size)


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
            self.glyph_embedding = EmbeddingTable(
                glyph_layers.NUM_GLYPHS, architecture.embedding_dim
            )
        if architecture.crop:
            self.crop = glyph_layers.GlyphConvolutions("crop", layers, stride=1, dtype=dtype)
        if architecture.glyphs:
            self.map = glyph_layers.GlyphConvolutions("glyph", layers, stride=2, dtype=dtype)
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
