"""The 12x12 cells of the screen round the hero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.envs.nethack.buffers import PAD_ROWS, PADDED_SHAPE, SCREEN_SHAPE, Buffers, Memory

WINDOW = 12
_HALF = WINDOW // 2
_COLUMNS = SCREEN_SHAPE[1]

# chars, colours: uint8 [12, 12] views of the screen; columns of the window that lie outside, or None.
Cells = tuple[np.ndarray, np.ndarray, slice | None]


class Windows:
    """Views of the screen for every place the hero can stand, made when first asked for.

    The window reaches six cells to the left of and above the hero, five to the right and below, so that the hero is in
    cell [6, 6]. The map's row y is the screen's row y + 1; with `row_offset` (a published quirk) that is forgotten and
    the hero appears in cell [7, 6].
    """

    def __init__(self, buffers: Buffers, row_offset: bool = False) -> None:
        self._chars = buffers.padded_chars
        self._colors = buffers.padded_colors
        self._top = PAD_ROWS - _HALF + (0 if row_offset else 1)
        self.cache: list[Cells | None] = [None] * (SCREEN_SHAPE[0] * _COLUMNS)

    def make(self, x: int, y: int) -> Cells:
        """The views for map column `x` and row `y`; kept in `cache[y * 80 + x]`.

        A view that leaves the screen sideways shows the neighbouring rows' cells there: the third entry names
        those columns, which are to be blanked.
        """
        left = x - _HALF
        offset = (self._top + y) * _COLUMNS + left
        shape, strides = (WINDOW, WINDOW), (_COLUMNS, 1)
        chars = np.ndarray(shape, np.uint8, self._chars.data, offset, strides)
        colors = np.ndarray(shape, np.uint8, self._colors.data, offset, strides)
        cells = self.cache[y * _COLUMNS + x] = (chars, colors, _outside(left))
        return cells


class GroupWindows:
    """The windows of all games of a group at once; places as in `Windows`."""

    def __init__(self, memory: Memory, row_offset: bool = False) -> None:
        screens = memory.screens
        # Every run of cells that a window could start at, as overlapping 12x12 views of the flat screens.
        cells = screens.size - (WINDOW - 1) * _COLUMNS - WINDOW + 1
        self._windows = np.ndarray((cells, WINDOW, WINDOW), np.uint8, screens.data, 0, (1, _COLUMNS, 1))
        top = PAD_ROWS - _HALF + (0 if row_offset else 1)
        cells_of_game = PADDED_SHAPE[0] * PADDED_SHAPE[1]
        first = np.arange(memory.count) * cells_of_game + top * _COLUMNS - _HALF
        self._first = first + np.array([[0], [screens[0].size]])

    def write(self, heroes: Sequence[Sequence[int]], chars: np.ndarray, colors: np.ndarray) -> None:
        """Writes the windows round the heroes into uint8 [count, 12, 12] arrays.

        Args:
            heroes: for each game a sequence that starts with the hero's map column and row.
            chars: where the characters go.
            colors: where the colours go.
        """
        places = np.array([hero[1] * _COLUMNS + hero[0] for hero in heroes])
        chars[...], colors[...] = self._windows[self._first + places]
        for column, hero in enumerate(heroes):
            if not _HALF <= hero[0] <= _COLUMNS - WINDOW + _HALF:
                outside = _outside(hero[0] - _HALF)
                chars[column, :, outside] = 0
                colors[column, :, outside] = 0


def _outside(left: int) -> slice | None:
    """The columns of a window that starts at screen column `left` which lie outside the screen."""
    if left < 0:
        return slice(0, -left)
    if left + WINDOW > _COLUMNS:
        return slice(_COLUMNS - left, WINDOW)
    return None
