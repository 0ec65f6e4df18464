"""The 12x12 cells of the screen round the hero."""

from __future__ import annotations

import numpy as np

from motif_jax.envs.buffers import PAD_ROWS, PADDED_SHAPE, SCREEN_SHAPE, Buffers, Memory, X, Y

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
        # Every run of cells that a window could start at, as overlapping 12x12 views of the flat screens.
        cells = memory.chars.size - (WINDOW - 1) * _COLUMNS - WINDOW + 1
        shape, strides = (cells, WINDOW, WINDOW), (1, _COLUMNS, 1)
        self._chars = np.ndarray(shape, np.uint8, memory.chars.data, 0, strides)
        self._colors = np.ndarray(shape, np.uint8, memory.colors.data, 0, strides)
        top = PAD_ROWS - _HALF + (0 if row_offset else 1)
        screen = PADDED_SHAPE[0] * PADDED_SHAPE[1]
        self._first = np.arange(memory.count) * screen + top * _COLUMNS - _HALF

    def write(self, status: np.ndarray, chars: np.ndarray, colors: np.ndarray) -> None:
        """Writes the windows round the heroes of `status` (int64 [count, 27]) into uint8 [count, 12, 12] arrays."""
        x = status[:, X]
        first = status[:, Y] * _COLUMNS + x + self._first
        chars[...] = self._chars[first]
        colors[...] = self._colors[first]
        at_edge = (x < _HALF) | (x > _COLUMNS - WINDOW + _HALF)
        for column in np.flatnonzero(at_edge).tolist():
            outside = _outside(int(x[column]) - _HALF)
            chars[column, :, outside] = 0
            colors[column, :, outside] = 0


def _outside(left: int) -> slice | None:
    """The columns of a window that starts at screen column `left` which lie outside the screen."""
    if left < 0:
        return slice(0, -left)
    if left + WINDOW > _COLUMNS:
        return slice(_COLUMNS - left, WINDOW)
    return None
