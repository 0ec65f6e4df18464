"""Describes an agent's view in clauses: the text of BabyAI-Text, in English and in French.

Source: the published environment's description, as facts; see NOTICE. Each clause is about one
thing. The carried object comes first, then the walls ahead, left and right, then all else by column
and row of the view.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from motif_jax.envs.babyai_text.catalogue import ENGLISH, FRENCH

OBJECTS = (
    "unseen",
    "empty",
    "wall",
    "floor",
    "door",
    "key",
    "ball",
    "box",
    "goal",
    "lava",
    "agent",
)
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
VIEW = 7
_EMPTY = OBJECTS.index("empty")
_WALL = OBJECTS.index("wall")
# The agent is in the middle of the view's last row and looks along its column.
_COLUMN = VIEW // 2
_ROW = VIEW - 1
# In English and French, and the step in (column, row).
_DIRECTIONS = (
    ("forward", "devant", (0, -1)),
    ("left", "à gauche", (-1, 0)),
    ("right", "à droite", (1, 0)),
)


def clauses(
    image: np.ndarray, carried: tuple[str, str] | None, language: str = ENGLISH
) -> list[str]:
    """The clauses of the view `image` uint8 [7, 7, 3], [column, row, (object, colour, state of a
    door)].

    `carried` is the type and colour of what the agent carries.
    """
    cells = image.tolist()
    if language == FRENCH:
        return _french_clauses(cells, carried)
    return _english_clauses(cells, carried)


def _english_clauses(cells: list, carried: tuple[str, str] | None) -> list[str]:
    sentences = []
    if carried is not None:
        kind, color = carried
        sentences.append(f"You carry a {color} {kind}")
    for direction, _, step in _DIRECTIONS:
        distance = _wall_distance(cells, step)
        if distance:
            sentences.append(f"You see a wall {_steps(distance)} {direction}")
    return sentences + [_english_clause(*thing) for thing in _things(cells)]


def _french_clauses(cells: list, carried: tuple[str, str] | None) -> list[str]:
    sentences = []
    if carried is not None:
        kind, color = carried
        # As published, with the English words.
        sentences.append(f"Tu portes une {kind} {color}")
    for _, direction, step in _DIRECTIONS:
        distance = _wall_distance(cells, step)
        if distance:
            sentences.append(f"Tu vois un mur à {distance} pas {direction}")
    return sentences + [_french_clause(*thing) for thing in _things(cells)]


def _wall_distance(cells: list, step: tuple[int, int]) -> int:
    """Steps to the wall in one direction; 0 if something is in between or no wall is in view."""
    column = _COLUMN
    row = _ROW
    distance = 0
    while True:
        column += step[0]
        row += step[1]
        distance += 1
        if not (0 <= column < VIEW and 0 <= row < VIEW):
            return 0
        kind = cells[column][row][0]
        # The codes below are unseen and empty cells.
        if kind > _EMPTY:
            return distance if kind == _WALL else 0


def _things(cells: list) -> Iterator[tuple[str, str, int, int, int]]:
    """(type, colour, state, steps right, steps forward) of everything but walls; left is
    negative.
    """
    for column in range(VIEW):
        for row in range(VIEW):
            kind, color, state = cells[column][row]
            # Skips the agent's cell, which shows the carried object, or the open door around the
            # agent.
            if kind > _WALL and (column, row) != (_COLUMN, _ROW):
                yield OBJECTS[kind], COLORS[color], state, column - _COLUMN, _ROW - row


def _steps(number: int) -> str:
    return f"{number} step" if number == 1 else f"{number} steps"


_ENGLISH_STATES = ("open", "closed", "locked")


def _english_clause(kind: str, color: str, state: int, right: int, forward: int) -> str:
    name = f"{color} {kind}"
    if kind == "door":
        name = f"{_ENGLISH_STATES[state]} {name}"
    distances = []
    if right:
        distances.append(f"{_steps(abs(right))} {'right' if right > 0 else 'left'}")
    if forward:
        distances.append(f"{_steps(forward)} forward")
    return f"You see a {name} {' and '.join(distances)}"


FRENCH_COLORS = {
    "red": "rouge", "green": "verte", "blue": "bleue", "purple": "violette", "yellow": "jaune", "grey": "grise",
}  # fmt: skip
FRENCH_NAMES = {"key": "clef", "ball": "balle", "box": "boîte", "door": "porte", "floor": "sol"}
_FRENCH_STATES = (" ouverte", " fermée", " fermée à clef")


def _french_clause(kind: str, color: str, state: int, right: int, forward: int) -> str:
    name = f"{FRENCH_NAMES.get(kind, kind)} {FRENCH_COLORS[color]}"
    if kind == "door":
        name += _FRENCH_STATES[state]
    distances = []
    if right:
        distances.append(f"{abs(right)} pas {'à droite' if right > 0 else 'à gauche'}")
    if forward:
        distances.append(f"{forward} pas devant")
    return f"Tu vois une {name} {' et '.join(distances)}"
