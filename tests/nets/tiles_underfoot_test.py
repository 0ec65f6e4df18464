"""The tile under the hero, which a network remembers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.envs.nethack import status
from motif_jax.nets import tile_embedding
from tests import agents

SMALL = {"image_features": 16, "vector_features": 8, "message_features": 8, "hidden_size": 16}


def network_input(batch: int) -> dict[str, np.ndarray]:
    """Random fields of NetHack, [1, batch, ...]."""
    rng = np.random.default_rng(3)
    fields = {}
    for name, field in agents.NETHACK_SPEC.observation.items():
        limit = 16 if "colors" in name else 256
        fields[name] = rng.integers(0, limit, (1, batch, *field.shape)).astype(field.dtype)
    return fields


# What the hero does in each row: a new episode, a step, east onto the stairs, a step there, another
# level, a step there, a new episode, a jump out of the window.
HERO_COLUMNS = (10, 10, 11, 11, 12, 12, 13, 40)
HERO_LEVELS = (0, 0, 0, 0, 1, 1, 1, 1)
HERO_FIRST = np.array([True, False, False, False, False, False, True, False])[:, None]
TILES_UNDERFOOT = (0, 0, ord(">"), ord(">"), 0, 0, 0, 0)


def walk_over_stairs() -> dict[str, np.ndarray]:
    """Eight rows of one game, [8, 1, ...]."""
    chars = np.full((8, 1, 12, 12), ord("."), np.uint8)
    chars[:, 0, 6, 6] = ord("@")
    chars[1, 0, 6, 7] = ord(">")
    numbers = np.zeros((8, 1, 27), np.int32)
    numbers[:, 0, status.X] = HERO_COLUMNS
    numbers[:, 0, status.DUNGEON_LEVEL] = HERO_LEVELS
    return {"window_chars": chars, "blstats": numbers}


def test_the_tile_under_the_hero_is_the_one_seen_before() -> None:
    memory = jnp.zeros((1, tile_embedding.MEMORY_SIZE))

    tiles, _ = tile_embedding.track(walk_over_stairs(), memory, HERO_FIRST)

    assert tuple(tiles[:, 0].tolist()) == TILES_UNDERFOOT


def test_tiles_underfoot_are_the_same_row_by_row() -> None:
    observation = walk_over_stairs()
    tiles, final = tile_embedding.track(
        observation, jnp.zeros((1, tile_embedding.MEMORY_SIZE)), HERO_FIRST
    )

    # An episode's start ignores the memory.
    memory = jnp.ones((1, tile_embedding.MEMORY_SIZE))
    for t in range(8):
        row = {name: x[t : t + 1] for name, x in observation.items()}
        tile, memory = tile_embedding.track(row, memory, HERO_FIRST[t : t + 1])
        assert tile[0, 0] == tiles[t, 0]

    np.testing.assert_array_equal(memory, final)


@pytest.mark.slow
def test_the_remembered_tile_changes_the_policy() -> None:
    network = agents.nethack_network(encoder="tiles_underfoot", **SMALL)
    params = network.init(jax.random.key(0))
    observation = network_input(2)
    apply = jax.jit(network.apply)
    *_, state = apply(params, observation, network.initial_state(2), np.ones((1, 2), bool))

    # The hero did not move: it still covers the tile of the memory, which is the state's last
    # number.
    not_first = np.zeros((1, 2), bool)
    stairs_logits, *_ = apply(params, observation, state.at[:, -1].set(ord(">")), not_first)
    unknown_logits, *_ = apply(params, observation, state.at[:, -1].set(0), not_first)

    assert network.state_size == 16 + tile_embedding.MEMORY_SIZE
    assert np.all(np.any(stairs_logits != unknown_logits, axis=-1))
