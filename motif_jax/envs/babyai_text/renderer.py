"""A grid world as minigrid draws it, and as text: a letter for each cell, in the colours of a
terminal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from motif_jax.envs.babyai_text.environment import decoded
from motif_jax.envs.babyai_text.sentences import COLORS, OBJECTS
from motif_jax.envs.spec import Frame, Renderer

_OBJECT_LETTERS = {
    "unseen": " ", "empty": " ", "wall": "#", "floor": "_", "door": "+", "key": "k", "ball": "o", "box": "b", "goal": "G",
    "lava": "~", "agent": "@",
}  # fmt: skip
# By object; by state of a door: open, closed, locked.
_LETTERS = np.array([ord(_OBJECT_LETTERS[name]) for name in OBJECTS], np.uint8)
_DOORS = np.frombuffer(b"/+X", np.uint8)
_HERO = ">v<^"
# Terminal colours, bright if possible.
_TERMINAL_COLORS = {"red": 9, "green": 10, "blue": 12, "purple": 13, "yellow": 11, "grey": 7}
_TERMINAL = np.array([_TERMINAL_COLORS[name] for name in COLORS], np.uint8)
_WHITE = 15
# Maximum of pixels of a cell, and of a picture's side.
_TILE = 32
_SIDE = 320


class GridRenderer(Renderer):
    """Draws cells two characters wide; empty cells that the agent sees have a dot."""

    fields = ("grid", "lit", "pose", "prompt")

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        kinds, colors, states = (observation["grid"][..., part].T for part in range(3))
        door = OBJECTS.index("door")
        empty = OBJECTS.index("empty")
        letters = _LETTERS[kinds]
        letters = np.where(kinds == door, _DOORS[np.minimum(states, 2)], letters)
        letters = np.where((kinds == empty) & (observation["lit"].T > 0), ord("."), letters)
        x, y, direction = observation["pose"].tolist()
        letters[y, x] = ord(_HERO[direction])

        shades = _TERMINAL[np.minimum(colors, len(COLORS) - 1)]
        shades[y, x] = _WHITE

        rows, columns = letters.shape
        chars = np.full((rows, 2 * columns), ord(" "), np.uint8)
        chars[:, ::2] = letters
        picture = self._picture(observation["grid"], observation["lit"] > 0, x, y, direction)
        notes = self.notes(observation)
        return Frame(chars, shades.repeat(2, axis=1), (y, 2 * x), notes=notes, picture=picture)

    def _picture(
        self, grid: np.ndarray, lit: np.ndarray, x: int, y: int, direction: int
    ) -> np.ndarray:
        from minigrid.core.grid import Grid

        # With several kinds of task the arrays have the size of the largest grid.
        columns, rows = np.nonzero(grid[..., 0])
        width = int(columns.max()) + 1
        height = int(rows.max()) + 1
        world, _ = Grid.decode(grid[:width, :height])
        tile = min(_TILE, _SIDE // max(width, height))
        return world.render(tile, (x, y), direction, lit[:width, :height])

    def notes(self, observation: Mapping[str, np.ndarray]) -> dict[str, str]:
        return {name: decoded(observation[name]) for name in ("mission", "prompt")}
