"""The 12x12 cells of the screen around the hero."""

from __future__ import annotations

import numpy as np

from motif_jax.envs.nethack.buffers import PAD_ROWS, SCREEN_SHAPE, Buffers

WINDOW = 12
_HALF = WINDOW // 2
_COLUMNS = SCREEN_SHAPE[1]

# (uint8 [2, 12, 12], a view of characters and colours; columns outside, or None).
Cells = tuple[np.ndarray, slice | None]


class ScreenWindows:
    """Views of the screen for every place of the hero, made on first use; the hero is in cell
    [6, 6].

    Map row y is screen row y + 1; `row_offset` (a published quirk) ignores that, so that the hero
    is in cell [7, 6].
    """

    def __init__(self, buffers: Buffers, row_offset: bool = False) -> None:
        screens = buffers.memory.screens
        self._screens = screens.data
        self._strides = (screens.strides[0], _COLUMNS, 1)
        self._start = buffers.index * screens.strides[1]
        self._top = PAD_ROWS - _HALF + (0 if row_offset else 1)
        self.cache: list[Cells | None] = [None] * (SCREEN_SHAPE[0] * _COLUMNS)

    def make(self, x: int, y: int) -> Cells:
        """The views for map column `x` and row `y`; cached in `cache[y * 80 + x]`.

        A view over the screen's side shows cells of neighbouring rows; the last entry has those
        columns, for blanking.
        """
        left = x - _HALF
        offset = self._start + (self._top + y) * _COLUMNS + left
        planes = np.ndarray((2, WINDOW, WINDOW), np.uint8, self._screens, offset, self._strides)
        outside = None
        if left < 0:
            outside = slice(0, -left)
        elif left + WINDOW > _COLUMNS:
            outside = slice(_COLUMNS - left, WINDOW)
        cells = (planes, outside)
        self.cache[y * _COLUMNS + x] = cells
        return cells
