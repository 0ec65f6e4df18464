"""Remembers the tile under NetHack's hero, which the screen hides.

The tile comes from the window before the hero moved. Tiles outside of that window, and at a level's
start, are unknown (0).
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
# Row and column of the hero in the window.
_HERO = WINDOW // 2
# Fields of the status that say where the hero is.
_POSITION = (X, Y, DUNGEON, DUNGEON_LEVEL)
MEMORY_SIZE = WINDOW * WINDOW + len(_POSITION) + 1


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
