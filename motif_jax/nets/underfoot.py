"""Remembers the tile under NetHack's hero, which the screen hides.

The tile comes from the window before the hero moved. Tiles outside of that window, and at a level's start, are unknown (0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from motif_jax.envs.nethack.status import DUNGEON, DUNGEON_LEVEL, X, Y
from motif_jax.envs.nethack.window import WINDOW

Array = jax.Array
_HERO = WINDOW // 2  # row and column of the hero in the window
_PLACE = (X, Y, DUNGEON, DUNGEON_LEVEL)
MEMORY_SIZE = WINDOW * WINDOW + len(_PLACE) + 1


class _Memory(NamedTuple):
    """The newest row's window [B, 144], place [B, 4] and character under the hero [B, 1]; float32."""

    window: Array
    place: Array
    tile: Array


def track(observation: Mapping[str, Array], memory: Array, first: Array) -> tuple[Array, Array]:
    """The characters int32 [T, B] under the hero, 0 if unknown, and the memory after row T-1.

    The observation has `window_chars` uint8 [T, B, 12, 12] and `blstats` [T, B, 27]. The memory before, float32 [B, MEMORY_SIZE], is
    ignored at an episode's start, where `first` (bool [T, B]) is set.
    """
    chex.assert_shape(memory, (first.shape[1], MEMORY_SIZE))
    length, batch = first.shape
    windows = observation["window_chars"].reshape(length, batch, -1).astype(jnp.float32)
    places = observation["blstats"][..., jnp.asarray(_PLACE)].astype(jnp.float32)

    def step(before: _Memory, row: tuple[Array, Array, Array]) -> tuple[_Memory, Array]:
        window, place, begins = row
        moved = place[:, :2] - before.place[:, :2] + _HERO  # column and row of the hero in the window before
        near = jnp.all((moved >= 0) & (moved < WINDOW), axis=1)
        known = near & jnp.all(place[:, 2:] == before.place[:, 2:], axis=1) & ~begins
        cell = jnp.clip(moved[:, 1] * WINDOW + moved[:, 0], 0, WINDOW * WINDOW - 1).astype(jnp.int32)
        seen = jnp.take_along_axis(before.window, cell[:, None], axis=1)
        stayed = jnp.all(moved == _HERO, axis=1)[:, None]
        tile = jnp.where(known[:, None], jnp.where(stayed, before.tile, seen), 0.0)
        return _Memory(window, place, tile), tile[:, 0]

    parts = jnp.split(memory, (WINDOW * WINDOW, MEMORY_SIZE - 1), axis=1)
    final, tiles = jax.lax.scan(step, _Memory(*parts), (windows, places, first))
    return tiles.astype(jnp.int32), jnp.concatenate(final, axis=1)


class UnderfootTrunk(nn.Module):
    """Encoder, core and the tile under the hero: observation [T, B, ...] -> [T, B, H + features].

    The state is the core's state followed by the memory of `track`. The tile's embedding bypasses the core.
    """

    encoder: nn.Module
    core: nn.Module
    features: int

    @nn.compact
    def __call__(self, observation: Mapping[str, Array], state: Array, first: Array) -> tuple[Array, Array]:
        length, batch = first.shape
        tiles, memory = track(observation, state[:, -MEMORY_SIZE:], first)
        rows = {name: x.reshape(length * batch, *x.shape[2:]) for name, x in observation.items()}
        features = self.encoder(rows).reshape(length, batch, -1)
        table = self.param("underfoot_table", nn.initializers.normal(0.5), (256, self.features))
        under = jnp.take(table, tiles, axis=0)
        outputs, core_state = self.core(features, state[:, :-MEMORY_SIZE], first)
        joined = jnp.concatenate([outputs.astype(jnp.float32), under], axis=-1)
        return joined, jnp.concatenate([core_state, memory], axis=1)
