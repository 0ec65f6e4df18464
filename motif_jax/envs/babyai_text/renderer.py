"""A grid world as text: a letter for each cell, in the colours of a terminal."""

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


class GridRenderer(Renderer):
    """Draws cells two characters wide; empty cells that the agent sees have a dot."""

    fields = ("grid", "lit", "pose", "prompt")

    def frame(self, observation: Mapping[str, np.ndarray]) -> Frame:
        kinds, colors, states = (observation["grid"][..., place].T for place in range(3))
        letters = _LETTERS[kinds]
        door, empty = OBJECTS.index("door"), OBJECTS.index("empty")
        letters = np.where(kinds == door, _DOORS[np.minimum(states, 2)], letters)
        letters = np.where((kinds == empty) & (observation["lit"].T > 0), ord("."), letters)
        x, y, direction = observation["pose"].tolist()
        letters[y, x] = ord(_HERO[direction])
        shades = _TERMINAL[np.minimum(colors, len(COLORS) - 1)]
        shades[y, x] = _WHITE
        rows, columns = letters.shape
        chars = np.full((rows, 2 * columns), ord(" "), np.uint8)
        chars[:, ::2] = letters
        lit = observation["lit"]
        return Frame(
            chars,
            shades.repeat(2, axis=1),
            (y, 2 * x),
            cells=np.concatenate([observation["grid"], lit[..., None]], axis=-1),
            pose=(x, y, direction),
            notes=self.notes(observation),
        )

    def notes(self, observation: Mapping[str, np.ndarray]) -> dict[str, str]:
        return {name: decoded(observation[name]) for name in ("mission", "prompt")}
