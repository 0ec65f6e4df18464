"""The memory that the engine writes its observations into, and cheap views of it.

Status numbers and glyphs lie side by side, so that remembering the view before a step is one copy. The screen lies
inside a larger array of zeros, so that a window over its upper or lower edge is a plain view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

MAP_SHAPE = (21, 79)
SCREEN_SHAPE = (24, 80)
NUM_STATUS = 27
MESSAGE_LENGTH = 256
PAD_ROWS = 8
# What the map shows where nothing was seen yet.
BLANK_GLYPH = 2359

# Indices of the status numbers that the rules read.
X, Y, SCORE, DEPTH, GOLD, LEVEL, TIME, DUNGEON, DUNGEON_LEVEL, CONDITION = 0, 1, 9, 12, 13, 18, 20, 23, 24, 25

_STATUS_BYTES = NUM_STATUS * 8
_GLYPH_BYTES = MAP_SHAPE[0] * MAP_SHAPE[1] * 2
GLYPHS_AT = _STATUS_BYTES
_MISC_AT = (_STATUS_BYTES + _GLYPH_BYTES + 7) // 8 * 8
_MESSAGE_AT = _MISC_AT + 16
_PROGRAM_AT = _MESSAGE_AT + MESSAGE_LENGTH
_TOTAL = _PROGRAM_AT + 24


class View:
    """Status numbers and glyphs of one moment.

    Attributes:
        memory: the whole as bytes, for copies between views.
        status: int64 numbers [27].
        glyphs: int16 [21, 79].
    """

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory[:_MISC_AT]
        self.status = memory[:_STATUS_BYTES].cast("q")
        glyphs = np.frombuffer(memory, np.int16, _GLYPH_BYTES // 2, GLYPHS_AT)
        self.glyphs = glyphs.reshape(MAP_SHAPE)

    @classmethod
    def empty(cls) -> View:
        """A view of its own memory, all zero."""
        return cls(memoryview(bytearray(_MISC_AT)))


class Buffers:
    """Where one engine writes, by the engine's names, and the views that a step needs.

    Attributes:
        view: status and glyphs as a `View`; `block` is the bytearray behind them.
        flags: int64 [2]; not both zero exactly when the engine waits for a space, a line or a single key.
        misc: int32 [3]: waits for a single key, for a line, for a space.
        message_memory: the 256 bytes of the message.
        blstats: int64 [27]. message: uint8 [256]. program_state: int32 [6].
        tty_chars: uint8 [24, 80]. tty_colors: int8 [24, 80]. padded_chars, padded_colors: uint8 [40, 80] round them.
    """

    def __init__(self) -> None:
        self.block = bytearray(_TOTAL)
        memory = memoryview(self.block)
        self.view = View(memory)
        self.glyphs = self.view.glyphs
        self.blstats = np.frombuffer(memory, np.int64, NUM_STATUS)
        self.misc = np.frombuffer(memory, np.int32, 3, _MISC_AT)
        self.flags = memory[_MISC_AT : _MISC_AT + 16].cast("q")
        self.message = np.frombuffer(memory, np.uint8, MESSAGE_LENGTH, _MESSAGE_AT)
        self.message_memory = memory[_MESSAGE_AT : _MESSAGE_AT + MESSAGE_LENGTH]
        self.program_state = np.frombuffer(memory, np.int32, 6, _PROGRAM_AT)
        rows = SCREEN_SHAPE[0] + 2 * PAD_ROWS
        self.padded_chars = np.zeros((rows, SCREEN_SHAPE[1]), np.uint8)
        self.padded_colors = np.zeros((rows, SCREEN_SHAPE[1]), np.uint8)
        inside = slice(PAD_ROWS, PAD_ROWS + SCREEN_SHAPE[0])
        self.tty_chars = self.padded_chars[inside]
        self.tty_colors = self.padded_colors[inside].view(np.int8)

    def clear(self) -> None:
        """Sets everything to zero: the engine writes only what changed, also when a new game starts."""
        self.block[:] = bytes(_TOTAL)
        self.padded_chars.fill(0)
        self.padded_colors.fill(0)

    def engine_arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the engine is given, by its names for them."""
        names = ("glyphs", "blstats", "message", "program_state", "misc", "tty_chars", "tty_colors")
        return {name: getattr(self, name) for name in names}


class Engine(Protocol):
    """What an environment needs of a game; tests put given frames in its place."""

    buffers: Buffers
    step: Callable[[int], None]
    done: Callable[[], bool]
    in_normal_game: Callable[[], bool]

    def start(self, core: int, disp: int) -> None:
        """Starts a new game up to the point where the hero can act; raises EngineError if that is not reached."""

    def close(self) -> None:
        """Frees the game."""
