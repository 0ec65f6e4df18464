"""Encoders of observations: raw fields -> a feature vector per row."""

from __future__ import annotations

from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.spec import REST
from motif_jax.nets.image import ImageEncoder
from motif_jax.nets.layers import ACTIVATIONS, Dense, KernelAndBias, convolve, scale_status
from motif_jax.nets.running_statistics import RunningScale

Array = jax.Array
# Bytes are divided by it.
BYTE_SCALE = 255.0
# Values of config.network.picture_normalisation -> axes over which a `PictureEncoder` takes mean
# and variance. A pixel's own take away how bright it is beside the others.
NORMALISED_AXES = {"pixel": (-1,), "picture": (-3, -2, -1)}
# A `PictureEncoder` halves sides to at most this one.
_SMALL_SIDE = 16


class NetHackEncoder(nn.Module):
    """Picture, status and message of NetHack -> [N, image + vector + 27 + message] features.

    Reads `window_chars` and `window_colors` uint8 [N, 12, 12], `blstats` [N, 27], `message` uint8
    [N, 256]. The features include the 27 scaled status numbers.
    """

    image: ImageEncoder
    vector_features: int
    message_features: int
    nonlinearity: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, observation: Mapping[str, Array]) -> Array:
        image = self.image(observation["window_chars"], observation["window_colors"])
        status = scale_status(observation["blstats"])
        vector = self._two_layers(status, self.vector_features, "vector")
        # As published, the bytes as 256 numbers, without an embedding.
        message = observation["message"].astype(jnp.float32) / BYTE_SCALE
        message = self._two_layers(message, self.message_features, "message")
        return jnp.concatenate([image, vector, status.astype(self.dtype), message], axis=-1)

    def _two_layers(self, x: Array, features: int, name: str) -> Array:
        act = ACTIVATIONS[self.nonlinearity]
        x = act(Dense(features, self.dtype, name=f"{name}_fc1")(x))
        return act(Dense(features, self.dtype, name=f"{name}_fc2")(x))


class PictureEncoder(nn.Module):
    """Pictures uint8 [N, H, W, C] -> [N, features]: 3x3 convolutions that halve the sides to at
    most 16, then two more.

    The output of the first is normalised, so that it suits both a grid world's codes (0 to 10) and
    pixels (0 to 255).

    Attributes:
      normalisation: a key of `NORMALISED_AXES`.
    """

    features: int
    nonlinearity: str
    dtype: jnp.dtype = jnp.float32
    normalisation: str = "pixel"

    @nn.compact
    def __call__(self, pictures: Array) -> Array:
        act = ACTIVATIONS[self.nonlinearity]
        x = pictures.astype(self.dtype) / BYTE_SCALE

        halvings = 0
        while max(x.shape[1:3]) > _SMALL_SIDE * 2**halvings:
            halvings += 1
        strides = [2] * halvings + [1, 1]

        for number, stride in enumerate(strides, start=1):
            channels = 16 if number == 1 else 32
            weights = KernelAndBias((3, 3, x.shape[-1], channels), name=f"conv{number}")()
            x = convolve(x, weights, stride, padding=1)
            if number == 1:
                axes = NORMALISED_AXES[self.normalisation]
                x = nn.LayerNorm(dtype=self.dtype, reduction_axes=axes, name="norm")(x)
            x = act(x)
        return act(Dense(self.features, self.dtype, name="fc")(x.reshape(x.shape[0], -1)))


def _parts(x: Array, rest: Array | None) -> tuple[Array, Array | None]:
    """Numbers [N, F] as float32, and what that rounds away, float32 [N, F]; None: nothing.

    Args:
      rest: the field of what the environment's spec has rounded away of `x`, None without one.
    """
    if rest is not None:
        return x, rest.reshape(x.shape)
    if x.dtype == jnp.int32:
        # float32 holds the upper and the lower half of the bits.
        lower = x & 0xFFFF
        return (x - lower).astype(jnp.float32), lower.astype(jnp.float32)
    return x.astype(jnp.float32), None


class FlatEncoder(nn.Module):
    """Numeric fields, flattened and joined in order of their names -> [N, features].

    Text bytes are divided by 255, each of the pictures has a `PictureEncoder`, and each of
    `scaled_fields` a `RunningScale`, which also reads the field of its name and `REST`, if there is
    one.
    """

    fields: tuple[str, ...]
    text_fields: tuple[str, ...]
    image_fields: tuple[str, ...]
    image_features: int
    sizes: tuple[int, ...]
    nonlinearity: str
    scaled_fields: tuple[str, ...] = ()
    picture_normalisation: str = "pixel"
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, observation: Mapping[str, Array]) -> Array:
        parts = []
        for name in self.fields:
            x = observation[name]
            if name in self.image_fields:
                scope = f"picture{self.image_fields.index(name)}"
                encoder = PictureEncoder(
                    self.image_features,
                    self.nonlinearity,
                    self.dtype,
                    self.picture_normalisation,
                    name=scope,
                )
                x = encoder(x)
            x = x.reshape(x.shape[0], -1)
            if name in self.scaled_fields:
                scale = RunningScale(name=f"scale{self.scaled_fields.index(name)}")
                x = scale(*_parts(x, observation.get(name + REST)))
            x = x.astype(jnp.float32)
            if name in self.text_fields:
                x = x / BYTE_SCALE
            parts.append(x)

        x = jnp.concatenate(parts, axis=-1)
        for number, features in enumerate(self.sizes, start=1):
            x = ACTIVATIONS[self.nonlinearity](
                Dense(features, self.dtype, name=f"flat_fc{number}")(x)
            )
        return x
