"""The policy's table of small pictures, one for each character in each colour."""

from __future__ import annotations

import numpy as np

from motif_jax.core import resources

_PATH = resources.path("third_party/hack_font_tiles/tiles.npy")


def load_tiles() -> np.ndarray:
    """uint8 [256 characters, 16 colours, 6 rows, 6 columns, 3 (red, green, blue)]."""
    return np.load(_PATH, allow_pickle=False)
