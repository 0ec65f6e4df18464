from __future__ import annotations

import numpy as np

from motif_jax.envs.nethack.tiles import load_tiles
from motif_jax.networks.tiles import TileSet


def test_colours_beyond_the_sixteenth_do_not_turn_into_another_character() -> None:
    tiles = TileSet(load_tiles())
    chars, colors = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    kinds = np.asarray(tiles.look_up(chars, colors))
    np.testing.assert_array_equal(kinds, tiles.kind[chars, colors & 15])
