"""A cheap encoder of NetHack: embeds the window's tiles and prefixes of the message, without
pictures.
"""

from __future__ import annotations

from collections.abc import Mapping

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.nets.layers import ACTIVATIONS, Dense
from motif_jax.nets.status import scale_status

Array = jax.Array
CHARACTERS = 256
COLOURS = 16
TILE_FEATURES = 8
# Lengths of the prefixes in bytes ("You kill", "You see here a"), up to the whole message.
BEGINNINGS = (8, 16, 32, 256)
BUCKETS = 1024  # hash values of each prefix
# Odd multipliers let each byte change the sum's upper bits.
_FACTORS = np.random.default_rng(0).integers(0, 1 << 31, BEGINNINGS[-1], np.uint32) * 2 + 1


def hash_beginnings(messages: Array) -> Array:
    """Hashes prefixes of messages uint8 [N, 256] to int32 [N, prefixes], each to a range of 1024
    values of its own.
    """
    chex.assert_shape(messages, (None, BEGINNINGS[-1]))
    # Mixes the bits of each term, so that swapped bytes and equal sums hash differently.
    terms = (messages.astype(jnp.uint32) + 1) * _FACTORS
    terms = (terms ^ (terms >> 15)) * jnp.uint32(2654435761)

    sums = []
    total = jnp.zeros(messages.shape[0], jnp.uint32)
    start = 0
    for stop in BEGINNINGS:
        total = total + jnp.sum(terms[:, start:stop], axis=1, dtype=jnp.uint32)
        sums.append(total)
        start = stop

    # The upper 10 bits, the best mixed ones, are a number below BUCKETS.
    buckets = jnp.stack(sums, axis=1) >> 22
    return (buckets + jnp.arange(len(BEGINNINGS), dtype=jnp.uint32) * BUCKETS).astype(jnp.int32)


class TileEmbeddingEncoder(nn.Module):
    """Window, status and message of NetHack -> [N, image + vector + 27 + message] features.

    Reads `window_chars` and `window_colors` uint8 [N, 12, 12], `blstats` [N, 27], `message` uint8
    [N, 256]. A tile's embedding is the sum of the embeddings of its character, its colour and the
    pair, so that rare tiles resemble others with their character. The features include the 27
    scaled status numbers. Embeddings are float32, so that their gradients are summed in float32.
    """

    image_features: int
    vector_features: int
    message_features: int
    nonlinearity: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, observation: Mapping[str, Array]) -> Array:
        act = ACTIVATIONS[self.nonlinearity]
        normal = nn.initializers.normal(0.3)
        zeros = nn.initializers.zeros_init()
        char_table = self.param("char_table", normal, (CHARACTERS, 1, TILE_FEATURES))
        color_table = self.param("color_table", normal, (1, COLOURS, TILE_FEATURES))
        # From zero: a pair begins as its character and its colour.
        pair_table = self.param("tile_table", zeros, (CHARACTERS, COLOURS, TILE_FEATURES))
        table = (char_table + color_table + pair_table).reshape(-1, TILE_FEATURES)

        chars = observation["window_chars"].astype(jnp.int32)
        colors = observation["window_colors"].astype(jnp.int32)
        chex.assert_rank([chars, colors], 3)
        tiles = jnp.take(table, chars * COLOURS + colors % COLOURS, axis=0, mode="clip")
        image = act(
            Dense(self.image_features, self.dtype, name="image_fc")(tiles.reshape(len(tiles), -1))
        )

        status = scale_status(observation["blstats"])
        vector = act(Dense(self.vector_features, self.dtype, name="vector_fc")(status))

        shape = (len(BEGINNINGS) * BUCKETS, self.message_features)
        message_table = self.param("message_table", nn.initializers.normal(0.1), shape)
        prefixes = hash_beginnings(observation["message"])
        message = jnp.sum(jnp.take(message_table, prefixes, axis=0), axis=1)

        parts = (image, vector, status.astype(self.dtype), message.astype(self.dtype))
        return jnp.concatenate(parts, axis=-1)
