"""Names of levels, kinds of task, actions and held-out pairs; importing this imports no
minigrid.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "BabyAI-"
KINDS = ("goto", "pickup", "open", "putnext", "pick up seq go to")
# Held out: no Train mission names these pairs; Test missions name only them.
HELD_OUT = ("yellow box", "red key", "green ball")
# minigrid's seventh action changes nothing; all listed actions after the sixth play it.
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
NO_EFFECT = 6
# Options that other levels may lack.
OF_ONE_LEVEL = ("kind", "distractors")
ENGLISH = "english"
FRENCH = "french"
LANGUAGES = (ENGLISH, FRENCH)

_COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
_TRAIN_DOORS = ("yellow", "green", "blue", "purple")
_TEST_DOORS = ("red", "grey")
_TRAIN_EXCLUDED = (*HELD_OUT, *(f"{color} door" for color in _TEST_DOORS))
_TEST_EXCLUDED = tuple(
    pair
    for pair in (f"{color} {noun}" for color in _COLORS for noun in ("key", "ball", "box"))
    if pair not in HELD_OUT
)


class LevelRecipe(NamedTuple):
    """The recipe of a level; `maker` is a class in `levels`, or a name registered by minigrid."""

    maker: str
    options: dict[str, Any]
    kinds: tuple[str, ...] = ()
    language: str = ENGLISH


def _sequence(second: str, *orders: str) -> LevelRecipe:
    return LevelRecipe(
        "SequenceLocal", {"second": second, "orders": orders, "excluded": _TRAIN_EXCLUDED}
    )


def _go_to(rooms: tuple[int, int], doors_open: bool) -> LevelRecipe:
    # One mission of one kind: to go to an object.
    options = {"num_rows": rooms[0], "num_cols": rooms[1], "doors_open": doors_open}
    return LevelRecipe(
        "ColoredLevel", {**options, "instr_kinds": ("action",), "action_kinds": ("goto",)}
    )


# Levels of the published fork's experiments that minigrid lacks.
LEVELS: dict[str, LevelRecipe] = {
    "BabyAI-MixedTrainLocal-v0": LevelRecipe(
        "MixedLocal",
        {"doors": _TRAIN_DOORS, "names_door": False, "excluded": _TRAIN_EXCLUDED},
        KINDS,
    ),
    "BabyAI-MixedTestLocal-v0": LevelRecipe(
        "MixedLocal", {"doors": _TEST_DOORS, "names_door": True, "excluded": _TEST_EXCLUDED}, KINDS
    ),
    "BabyAI-PickUpSeqGoToLocal-v0": _sequence("goto", "before", "after"),
    "BabyAI-PickUpThenGoToLocal-v0": _sequence("goto", "before"),
    "BabyAI-GoToAfterPickUpLocal-v0": _sequence("goto", "after"),
    "BabyAI-PickUpSeqPickUpLocal-v0": _sequence("pickup", "before", "after"),
    "BabyAI-GoToFrench-v0": LevelRecipe("BabyAI-GoToLocal-v0", {}, language=FRENCH),
    "BabyAI-GoToLocalS8N16-v0": LevelRecipe(
        "BabyAI-GoToLocal-v0", {"room_size": 8, "num_dists": 16}
    ),
    "BabyAI-GoToLocal2-v0": LevelRecipe(
        "ColoredLevel",
        {"num_rows": 1, "num_cols": 1, "instr_kinds": ("and",), "action_kinds": ("goto",)},
    ),
    "BabyAI-GoToMedium-v0": _go_to((1, 2), doors_open=False),
    "BabyAI-GoToMediumOpen-v0": _go_to((1, 2), doors_open=True),
    "BabyAI-GoToLarge-v0": _go_to((2, 2), doors_open=False),
    "BabyAI-GoToLargeOpen-v0": _go_to((2, 2), doors_open=True),
}


@functools.cache
def minigrid_names() -> tuple[str, ...]:
    """The levels that minigrid registers itself, read from its file without importing it."""
    package = importlib.util.find_spec("minigrid")
    if package is None or package.origin is None:
        return ()
    text = Path(package.origin).read_text(encoding="utf-8")
    return tuple(sorted(set(re.findall(rf'"({PREFIX}[\w-]+)"', text))))


def find(name: str) -> LevelRecipe | None:
    """The level called `name`, or None."""
    if name in LEVELS:
        return LEVELS[name]
    return LevelRecipe(name, {}) if name in minigrid_names() else None


def options_elsewhere(options: Mapping[str, Any], level: str, other: str) -> dict[str, Any]:
    """The options of `level` for the environment `other`, without those that other levels may
    lack.
    """
    if level == other or not level.startswith(PREFIX):
        return dict(options)
    return {key: value for key, value in options.items() if key not in OF_ONE_LEVEL}
