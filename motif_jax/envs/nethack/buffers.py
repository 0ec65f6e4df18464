"""The memory that the engines of a group write into, and cheap views of it.

A game's status numbers, prompt flags and glyphs are contiguous, so keeping the view before a step
is one copy. The screen lies inside a larger array of zeros, so a window over its upper or lower
edge is a plain view.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol

import numpy as np

from motif_jax.envs.nethack.status import NUM_STATUS

MAP_SHAPE = (21, 79)
SCREEN_SHAPE = (24, 80)
MESSAGE_LENGTH = 256
PAD_ROWS = 8
# Glyph of an unseen cell.
BLANK_GLYPH = 2359

_STATUS_BYTES = NUM_STATUS * 8
# After the status numbers: three int32 flags of prompts, and 4 bytes that nobody writes.
GLYPHS_AT = _STATUS_BYTES + 16
_GLYPHS = MAP_SHAPE[0] * MAP_SHAPE[1]
VIEW_BYTES = (GLYPHS_AT + 2 * _GLYPHS + 63) // 64 * 64
_PROGRAM_NUMBERS = 6

# Reads (x, y, score, time, dungeon, dungeon level, condition, waits for key or line, waits for
# space) from a view.
# The format skips the status numbers between. The flags are read as two int64, of which only zero
# or not counts: the first pair, and the last with the 4 free bytes.
read_status = struct.Struct(f"<2q{7 * 8}xq{10 * 8}xq{2 * 8}x3q{8}x2q").unpack_from
# Their indices.
NOW_X, NOW_Y, NOW_SCORE, NOW_TIME, NOW_DUNGEON, NOW_LEVEL, NOW_CONDITION = range(7)


class View:
    """Status numbers int64 [27] and glyphs int16 [21, 79] of one moment, and all its `memory`, for
    copies.
    """

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.status = memory[:_STATUS_BYTES].cast("q")
        self.glyphs = np.frombuffer(memory, np.int16, _GLYPHS, GLYPHS_AT).reshape(MAP_SHAPE)

    def explored(self) -> int:
        """The number of cells of the map that have been seen."""
        return int(np.count_nonzero(self.glyphs != BLANK_GLYPH))


class GameMemory:
    """The memory that `count` games write into.

    Attributes:
        views, before: bytearrays of `count` views, now and before the newest step.
        screens: uint8 [2, count, 40, 80], the padded characters and colours.
        tty_chars uint8, tty_colors int8 [count, 24, 80], glyphs int16 [count, 21, 79],
            status int32 [count, 27], the low words of the status numbers on little-endian machines:
            views of these.
    """

    def __init__(self, count: int) -> None:
        self.views = bytearray(count * VIEW_BYTES)
        self.before = bytearray(count * VIEW_BYTES)
        self.messages = np.zeros((count, MESSAGE_LENGTH), np.uint8)
        self.program_states = np.zeros((count, _PROGRAM_NUMBERS), np.int32)
        self.screens = np.zeros(
            (2, count, SCREEN_SHAPE[0] + 2 * PAD_ROWS, SCREEN_SHAPE[1]), np.uint8
        )
        inside = self.screens[:, :, PAD_ROWS : PAD_ROWS + SCREEN_SHAPE[0]]
        self.tty_chars = inside[0]
        self.tty_colors = inside[1].view(np.int8)
        words = np.frombuffer(self.views, np.int32).reshape(count, -1)
        self.status = words[:, : 2 * NUM_STATUS : 2]
        # Bytes from game to game, from row to row, and from cell to cell.
        steps = (VIEW_BYTES, 2 * MAP_SHAPE[1], 2)
        self.glyphs = np.ndarray((count, *MAP_SHAPE), np.int16, self.views, GLYPHS_AT, steps)


class Buffers:
    """Game `index` of `memory`: the arrays for its engine, by the engine's names, and views that a
    step needs.

    `now` is the `View` that the engine writes, `before` the one before the newest step; `misc` is
    int32 memory [3]: the game waits for a single key, for a line, for a space.
    """

    def __init__(self, memory: GameMemory | None = None, index: int = 0) -> None:
        memory = memory if memory is not None else GameMemory(1)
        self.memory = memory
        self.index = index
        piece = slice(index * VIEW_BYTES, (index + 1) * VIEW_BYTES)
        self.now = View(memoryview(memory.views)[piece])
        self.before = View(memoryview(memory.before)[piece])
        self.glyphs = self.now.glyphs
        self.blstats = np.frombuffer(self.now.memory, np.int64, NUM_STATUS)
        self._misc = np.frombuffer(self.now.memory, np.int32, 3, _STATUS_BYTES)
        self.misc = self._misc.data
        self.message = memory.messages[index]
        self.message_memory = self.message.data
        self.program_state = memory.program_states[index]
        self.tty_chars = memory.tty_chars[index]
        self.tty_colors = memory.tty_colors[index]

    def clear(self) -> None:
        """Zeroes everything, since the engine writes only changes, even when a new game starts."""
        self.now.memory[:] = bytes(VIEW_BYTES)
        self.message.fill(0)
        self.program_state.fill(0)
        self.memory.screens[:, self.index].fill(0)

    def engine_arrays(self) -> dict[str, np.ndarray]:
        """The arrays for nle's `set_buffers`, by its names."""
        names = ("glyphs", "blstats", "message", "program_state", "tty_chars", "tty_colors")
        return {name: getattr(self, name) for name in names} | {"misc": self._misc}


class Engine(Protocol):
    """An environment's interface to a game; tests replace it by prepared frames."""

    buffers: Buffers
    step: Callable[[int], None]
    done: Callable[[], bool]
    in_normal_game: Callable[[], bool]

    def start(self, core: int, disp: int) -> None:
        """Starts a game and plays to the hero's first action. Raises EngineError: the game does not
        get there.
        """

    def close(self) -> None:
        """Frees the game."""
