"""Windows of the screen around the hero, against the screen itself with a border of zeros."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs.nethack.buffers import Buffers, GameMemory
from motif_jax.envs.nethack.window import WINDOW, ScreenWindows

GAMES = 3
HALF = WINDOW // 2


@pytest.fixture
def memory() -> GameMemory:
    """Screens of three games whose cells differ in every position."""
    memory = GameMemory(GAMES)
    draws = np.random.default_rng(0)
    memory.tty_chars[...] = draws.integers(1, 256, memory.tty_chars.shape)
    memory.tty_colors[...] = draws.integers(1, 128, memory.tty_colors.shape)
    return memory


def cut_window(memory: GameMemory, game: int, x: int, screen_row: int) -> np.ndarray:
    """Characters and colours [2, 12, 12] whose cell [6, 6] is column `x` of `screen_row`, 0 beside
    the screen.
    """
    screen = np.stack([memory.tty_chars[game], memory.tty_colors[game].view(np.uint8)])
    padded = np.pad(screen, ((0, 0), (HALF, HALF), (HALF, HALF)))
    return padded[:, screen_row : screen_row + WINDOW, x : x + WINDOW]


@pytest.mark.parametrize("game", range(GAMES))
def test_a_window_shows_the_screen_of_its_own_game(memory: GameMemory, game: int) -> None:
    planes, outside = ScreenWindows(Buffers(memory, game)).make(30, 10)

    # The first row of the screen holds the message: map row 10 is screen row 11.
    np.testing.assert_array_equal(planes, cut_window(memory, game, 30, 11))
    assert outside is None


@pytest.mark.parametrize("y", [0, 20])
def test_cells_above_and_below_the_screen_are_empty(memory: GameMemory, y: int) -> None:
    planes = ScreenWindows(Buffers(memory, 1)).make(40, y)[0]

    np.testing.assert_array_equal(planes, cut_window(memory, 1, 40, y + 1))


@pytest.mark.parametrize(
    ("x", "outside"),
    [
        (0, slice(0, 6)),
        (5, slice(0, 1)),
        (6, None),
        (74, None),
        (75, slice(11, 12)),
        (78, slice(8, 12)),
    ],
)
def test_columns_beside_the_screen_are_named(
    memory: GameMemory, x: int, outside: slice | None
) -> None:
    planes, columns = ScreenWindows(Buffers(memory, 1)).make(x, 10)

    assert columns == outside
    blanked = planes.copy()
    if columns is not None:
        blanked[:, :, columns] = 0
    np.testing.assert_array_equal(blanked, cut_window(memory, 1, x, 11))


def test_the_published_offset_shows_one_row_higher(memory: GameMemory) -> None:
    planes = ScreenWindows(Buffers(memory, 1), row_offset=True).make(30, 10)[0]

    np.testing.assert_array_equal(planes, cut_window(memory, 1, 30, 10))


def test_a_window_follows_later_changes_of_the_screen(memory: GameMemory) -> None:
    planes = ScreenWindows(Buffers(memory, 1)).make(30, 10)[0]

    memory.tty_chars[1, 11, 30] = ord("@")

    assert planes[0, HALF, HALF] == ord("@")


def test_a_window_is_cached_by_column_and_row(memory: GameMemory) -> None:
    windows = ScreenWindows(Buffers(memory, 1))

    cells = windows.make(30, 10)

    assert windows.cache[10 * 80 + 30] is cells
    assert sum(entry is not None for entry in windows.cache) == 1
