"""Captions of steps, which name events and never the distance to the goal."""

from __future__ import annotations

from typing import NamedTuple

from motif_jax.envs.babyai_text.catalogue import ACTIONS
from motif_jax.envs.babyai_text.sentences import COLORS, OBJECTS

# Actions of minigrid after the two turns.
FORWARD, PICK_UP, DROP, TOGGLE = range(2, len(ACTIONS))
# States of a door.
_OPEN, _CLOSED, _LOCKED = range(3)
_TOGGLED = {_OPEN: "close", _CLOSED: "open", _LOCKED: "unlock"}


class GridCell(NamedTuple):
    """minigrid's codes of one cell."""

    kind: int
    color: int
    state: int

    def __str__(self) -> str:
        return f"{COLORS[self.color]} {OBJECTS[self.kind]}"


def caption(action: int, before: GridCell, after: GridCell, moved: bool) -> str:
    """The caption of a step; '' without an event.

    `before` and `after` are the cell in front of the agent; `moved` says whether the agent is in it
    now.
    """
    thing = OBJECTS[before.kind]
    changed = before != after
    if action == FORWARD:
        if moved:
            return f"You step into the {COLORS[before.color]} doorway." if thing == "door" else ""
        return "You bump into a wall." if thing == "wall" else f"You bump into a {before}."
    if action == PICK_UP and changed:
        return f"You pick up a {before}."
    if action == DROP and changed:
        return f"You drop a {after}."
    if action == TOGGLE and thing == "door":
        return (
            f"You {_TOGGLED[before.state]} the {before}." if changed else f"The {before} is locked."
        )
    if action == TOGGLE and changed:
        return f"You open a {before}."
    return ""
