"""The table of pictures that the policy sees: a small tile for each character in each colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from motif_jax.support.errors import UserError

TILES_SHAPE = (256, 16, 6, 6, 3)
_PATH = Path(__file__).resolve().parents[3] / "third_party" / "hack_font_tiles" / "tiles.npy"


def load_tiles() -> np.ndarray:
    """The table, uint8 [256 characters, 16 colours, 6 rows, 6 columns, 3 (red, green, blue)].

    Raises:
        UserError: the file is not where a clone of the repository has it, or is not that table.
    """
    if not _PATH.is_file():
        raise UserError(
            f"the tile table {_PATH} is missing: run from a clone of the repository, installed with pip install -e ."
        )
    tiles = np.load(_PATH, allow_pickle=False)
    if tiles.shape != TILES_SHAPE or tiles.dtype != np.uint8:
        raise UserError(
            f"{_PATH} is not the tile table: uint8 {TILES_SHAPE} expected, {tiles.dtype} {tiles.shape} found"
        )
    return tiles
