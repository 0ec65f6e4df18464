"""Describes an agent's view in clauses: the text of BabyAI-Text, in English and in French.

Source: the published environment's description, as facts; see NOTICE. Each clause is about one thing. The carried object
comes first, then the walls ahead, left and right, then all else by column and row of the view.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH

OBJECTS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
VIEW = 7
_UNSEEN, _EMPTY, _WALL, _DOOR = 0, 1, 2, 4
# The agent is in the middle of the view's last row and looks along its column.
_COLUMN, _ROW = VIEW // 2, VIEW - 1
# In English and French, and the step in (column, row).
_DIRECTIONS = (("forward", "devant", (0, -1)), ("left", "à gauche", (-1, 0)), ("right", "à droite", (1, 0)))


def clauses(image: np.ndarray, carried: tuple[str, str] | None, language: str = ENGLISH) -> list[str]:
    """The clauses of the view `image` uint8 [7, 7, 3], [column, row, (object, colour, state of a door)].

    `carried` is the type and colour of what the agent carries.
    """
    cells, said, french = image.tolist(), [], language == FRENCH
    if carried is not None:
        kind, color = carried
        # As published, the French sentence has English words.
        said.append(f"Tu portes une {kind} {color}" if french else f"You carry a {color} {kind}")
    for english_way, french_way, step in _DIRECTIONS:
        if distance := _wall(cells, step):
            english = f"You see a wall {_steps(distance)} {english_way}"
            said.append(f"Tu vois un mur à {distance} pas {french_way}" if french else english)
    seen = _french_seen if french else _english_seen
    return said + [seen(*thing) for thing in _things(cells)]


def _wall(cells: list, step: tuple[int, int]) -> int:
    """Steps to the wall in one direction; 0 if something is in between or no wall is in view."""
    column, row, distance = _COLUMN, _ROW, 0
    while True:
        column, row, distance = column + step[0], row + step[1], distance + 1
        if not (0 <= column < VIEW and 0 <= row < VIEW):
            return 0
        kind = cells[column][row][0]
        if kind > _EMPTY:
            return distance if kind == _WALL else 0


def _things(cells: list) -> Iterator[tuple[str, str, int, int, int]]:
    """(type, colour, state, steps right, steps forward) of everything but walls; left is negative."""
    for column in range(VIEW):
        for row in range(VIEW):
            kind, color, state = cells[column][row]
            # Skips the agent's cell, which shows the carried object, or the open door around the agent.
            if kind > _WALL and (column, row) != (_COLUMN, _ROW):
                yield OBJECTS[kind], COLORS[color], state, column - _COLUMN, _ROW - row


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"


def _english_seen(kind: str, color: str, state: int, right: int, forward: int) -> str:
    name = f"{('open', 'closed', 'locked')[state]} {color} {kind}" if kind == "door" else f"{color} {kind}"
    where = [f"{_steps(abs(right))} {'right' if right > 0 else 'left'}"] if right else []
    where += [f"{_steps(forward)} forward"] if forward else []
    return f"You see a {name} {' and '.join(where)}"


FRENCH_COLORS = dict(zip(COLORS, "rouge verte bleue violette jaune grise".split(), strict=True))
FRENCH_NAMES = {"key": "clef", "ball": "balle", "box": "boîte", "door": "porte", "floor": "sol"}
_FRENCH_STATES = (" ouverte", " fermée", " fermée à clef")


def _french_seen(kind: str, color: str, state: int, right: int, forward: int) -> str:
    name = f"{FRENCH_NAMES.get(kind, kind)} {FRENCH_COLORS[color]}"
    name += _FRENCH_STATES[state] if kind == "door" else ""
    where = [f"{abs(right)} pas {'à droite' if right > 0 else 'à gauche'}"] if right else []
    where += [f"{forward} pas devant"] if forward else []
    return f"Tu vois une {name} {' et '.join(where)}"
