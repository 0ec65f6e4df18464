"""The policy's table of small pictures, one for each character in each colour."""

from __future__ import annotations

import numpy as np

from motif_jax.support import resources
from motif_jax.support.errors import UserError

TILES_SHAPE = (256, 16, 6, 6, 3)
_PATH = resources.path("third_party/hack_font_tiles/tiles.npy")


def load_tiles() -> np.ndarray:
    """uint8 [256 characters, 16 colours, 6 rows, 6 columns, 3 (red, green, blue)]. Raises UserError: no file, or a wrong one."""
    if not _PATH.is_file():
        raise UserError(
            f"the tile table {_PATH} is missing: install motif_jax again, or take it from the repository"
        )
    tiles = np.load(_PATH, allow_pickle=False)
    if tiles.shape != TILES_SHAPE or tiles.dtype != np.uint8:
        raise UserError(
            f"{_PATH} is not the tile table: uint8 {TILES_SHAPE} expected, {tiles.dtype} {tiles.shape} found"
        )
    return tiles
