"""A cheap encoder of NetHack: embeds the window's tiles and prefixes of the message, without
pictures; and a trunk that remembers the tile under the hero, which the screen hides.

That tile comes from the window before the hero moved. Tiles outside of that window, and at a
level's start, are unknown (0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.envs.nethack.status import DUNGEON, DUNGEON_LEVEL, X, Y
from motif_jax.envs.nethack.window import WINDOW
from motif_jax.nets.layers import ACTIVATIONS, Dense, scale_status

Array = jax.Array
CHARACTERS = 256
COLOURS = 16
TILE_FEATURES = 8
# Lengths of the prefixes in bytes ("You kill", "You see here a"), up to the whole message.
BEGINNINGS = (8, 16, 32, 256)
BUCKETS = 1024  # hash values of each prefix
# Odd multipliers let each byte change the sum's upper bits.
_FACTORS = np.random.default_rng(0).integers(0, 1 << 31, BEGINNINGS[-1], np.uint32) * 2 + 1
# Row and column of the hero in the window.
_HERO = WINDOW // 2
# Fields of the status that say where the hero is.
_POSITION = (X, Y, DUNGEON, DUNGEON_LEVEL)
MEMORY_SIZE = WINDOW * WINDOW + len(_POSITION) + 1


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


class _Memory(NamedTuple):
    """The newest row's window [B, 144], position [B, 4] and character under the hero [B, 1];
    float32.
    """

    window: Array
    position: Array
    tile: Array


def track(observation: Mapping[str, Array], memory: Array, first: Array) -> tuple[Array, Array]:
    """The characters int32 [T, B] under the hero, 0 if unknown, and the memory after row T-1.

    The observation has `window_chars` uint8 [T, B, 12, 12] and `blstats` [T, B, 27]. `memory`,
    float32 [B, MEMORY_SIZE], is of the row before; it is ignored at an episode's start, where
    `first` (bool [T, B]) is set.
    """
    chex.assert_shape(memory, (first.shape[1], MEMORY_SIZE))
    length, batch = first.shape
    windows = observation["window_chars"].reshape(length, batch, -1).astype(jnp.float32)
    positions = observation["blstats"][..., jnp.asarray(_POSITION)].astype(jnp.float32)

    def step(before: _Memory, row: tuple[Array, Array, Array]) -> tuple[_Memory, Array]:
        window, position, begins = row
        # Column and row of the hero in the window before.
        target = position[:, :2] - before.position[:, :2] + _HERO
        in_window = jnp.all((target >= 0) & (target < WINDOW), axis=1)
        same_level = jnp.all(position[:, 2:] == before.position[:, 2:], axis=1)
        known = in_window & same_level & ~begins

        cell = jnp.clip(target[:, 1] * WINDOW + target[:, 0], 0, WINDOW * WINDOW - 1).astype(
            jnp.int32
        )
        target_tile = jnp.take_along_axis(before.window, cell[:, None], axis=1)
        # A hero that stayed covers the tile in the window before, too.
        stayed = jnp.all(target == _HERO, axis=1)[:, None]
        tile = jnp.where(known[:, None], jnp.where(stayed, before.tile, target_tile), 0.0)
        return _Memory(window, position, tile), tile[:, 0]

    # In the order of `_Memory`.
    window, position, tile = jnp.split(memory, (WINDOW * WINDOW, MEMORY_SIZE - 1), axis=1)
    start = _Memory(window, position, tile)
    final, tiles = jax.lax.scan(step, start, (windows, positions, first))
    return tiles.astype(jnp.int32), jnp.concatenate(final, axis=1)


class UnderfootTrunk(nn.Module):
    """Encoder, core and the tile under the hero: observation [T, B, ...] -> [T, B, H + features].

    The state is the core's state followed by the memory of `track`. The tile's embedding bypasses
    the core.
    """

    encoder: nn.Module
    core: nn.Module
    features: int

    @nn.compact
    def __call__(
        self, observation: Mapping[str, Array], state: Array, first: Array
    ) -> tuple[Array, Array]:
        length, batch = first.shape
        tiles, memory = track(observation, state[:, -MEMORY_SIZE:], first)
        rows = {name: x.reshape(length * batch, *x.shape[2:]) for name, x in observation.items()}
        features = self.encoder(rows).reshape(length, batch, -1)
        table = self.param("underfoot_table", nn.initializers.normal(0.5), (256, self.features))
        # Nothing else that the agent reads tells whether it stands on stairs.
        under = jnp.take(table, tiles, axis=0)
        outputs, core_state = self.core(features, state[:, :-MEMORY_SIZE], first)
        joined = jnp.concatenate([outputs.astype(jnp.float32), under], axis=-1)
        return joined, jnp.concatenate([core_state, memory], axis=1)
