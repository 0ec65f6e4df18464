"""A scripted player that gathers and builds, so that a dataset has events that random play does not
reach.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from crafter import constants

from motif_jax.core import seeds
from motif_jax.envs.crafter.environment import CHANNELS, COLUMNS, ROWS
from motif_jax.envs.episode import Choose
from motif_jax.envs.spec import EnvironmentSpec

# Numbers of the view's channels: materials, then objects.
_NUMBER = {name: number for number, name in enumerate(constants.materials, start=1)}
_COW = len(constants.materials) + 2
_ZOMBIE = _COW + 1
_SKELETON = _COW + 2
_WALKABLE = tuple(_NUMBER[name] for name in constants.walkable)
_ACTION = {name: number for number, name in enumerate(constants.actions)}
_MOVES = {
    (-1, 0): _ACTION["move_left"],
    (1, 0): _ACTION["move_right"],
    (0, -1): _ACTION["move_up"],
    (0, 1): _ACTION["move_down"],
}
# The order of the environment's field `facing`.
_FACINGS = tuple(_MOVES)
_PLAYER = (COLUMNS // 2, ROWS // 2)
# The player eats and drinks below this, out of 9, and sleeps below a lower one.
_LOW = 5
_TIRED = 3
# Wood for a table, and for the tools of wood and stone.
_ENOUGH_WOOD = 6
_ENOUGH_STONE = 5
_MOVE_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class Gatherer:
    """Walks to what it can use next in the player's view, takes it, and makes what it can; a share
    of its actions is random.

    Its actions depend on the episode's seed and on the observation of Crafter-v1. Raises UserError:
    `spec` is of another environment.
    """

    spec: EnvironmentSpec
    random_share: float = 0.2
    in_workers: ClassVar[bool] = True

    def player(self, seed: int, spec: EnvironmentSpec) -> Choose:
        """Returns what chooses the actions of the episode `seed`."""
        rng = seeds.rng(seed, "gatherer")
        heading = _FACINGS[int(rng.integers(len(_FACINGS)))]

        def choose(observation: Mapping[str, np.ndarray]) -> int:
            nonlocal heading
            if rng.random() < self.random_share:
                return int(rng.integers(spec.num_actions))
            cells = observation["view"].reshape(COLUMNS, ROWS, CHANNELS).argmax(-1)
            # The environment divides them by 9.
            numbers = (observation["inventory"] * 9).round().astype(int).tolist()
            inventory = dict(zip(constants.items, numbers, strict=True))
            facing = _FACINGS[int(observation["facing"].argmax())]
            # First what can be made here and now, then the way to the nearest useful thing.
            action = _handiwork(cells, inventory, facing)
            if action is None:
                action = _errand(cells, _wanted(inventory), facing)
            if action is not None:
                return action
            # Nothing useful in sight: straight on for a while.
            if rng.random() > _MOVE_SHARE or not _is_free(cells, _ahead(heading)):
                heading = _FACINGS[int(rng.integers(len(_FACINGS)))]
            return _MOVES[heading]

        return choose

    def probabilities(self, observation: Mapping[str, np.ndarray], spec: EnvironmentSpec) -> None:
        """None: its next action depends on its draws."""


def _ahead(direction: tuple[int, int]) -> tuple[int, int]:
    """The cell of the view next to the player in a direction."""
    return _PLAYER[0] + direction[0], _PLAYER[1] + direction[1]


def _is_free(cells: np.ndarray, cell: tuple[int, int]) -> bool:
    return int(cells[cell]) in _WALKABLE


def _handiwork(
    cells: np.ndarray, inventory: Mapping[str, int], facing: tuple[int, int]
) -> int | None:
    """What can be made or placed at once; None for nothing."""
    column, row = _PLAYER
    near = cells[column - 1 : column + 2, row - 1 : row + 2]
    utilities = [name for name in ("table", "furnace") if (near == _NUMBER[name]).any()]
    for name, rule in constants.make.items():
        has_all = all(inventory[item] >= amount for item, amount in rule["uses"].items())
        if has_all and not inventory[name] and set(rule["nearby"]) <= set(utilities):
            return _ACTION[f"make_{name}"]

    has_room = _is_free(cells, _ahead(facing))
    table_in_sight = (cells == _NUMBER["table"]).any()
    if has_room and inventory["wood"] >= _ENOUGH_WOOD and not table_in_sight:
        return _ACTION["place_table"]
    needs_furnace = inventory["stone"] >= _ENOUGH_STONE and "table" in utilities
    if has_room and needs_furnace and "furnace" not in utilities:
        return _ACTION["place_furnace"]
    if inventory["sapling"] and int(cells[_ahead(facing)]) == _NUMBER["grass"]:
        return _ACTION["place_plant"]
    if inventory["energy"] < _TIRED:
        return _ACTION["sleep"]
    return None


def _wanted(inventory: Mapping[str, int]) -> list[int]:
    """The numbers of what the player would take, in no order."""
    wanted = [_ZOMBIE, _SKELETON]
    if inventory["food"] < _LOW:
        wanted.append(_COW)
    if inventory["drink"] < _LOW:
        wanted.append(_NUMBER["water"])
    has_tools = (
        inventory["wood_pickaxe"] and inventory["stone_pickaxe"] and inventory["stone_sword"]
    )
    if inventory["wood"] < _ENOUGH_WOOD and not has_tools:
        wanted.append(_NUMBER["tree"])
    if inventory["wood_pickaxe"] and inventory["stone"] < _ENOUGH_STONE:
        wanted.append(_NUMBER["stone"])
    if inventory["wood_pickaxe"] and not inventory["coal"]:
        wanted.append(_NUMBER["coal"])
    if inventory["stone_pickaxe"]:
        wanted.append(_NUMBER["iron"])
    if inventory["iron_pickaxe"]:
        wanted.append(_NUMBER["diamond"])
    # Wood or stone in hand are of use at a table.
    if inventory["wood"] and not has_tools:
        wanted.append(_NUMBER["table"])
    return wanted


def _errand(cells: np.ndarray, wanted: list[int], facing: tuple[int, int]) -> int | None:
    """The first action on the shortest way to a wanted cell, or the one that takes it; None without
    any in reach.
    """
    first_steps: dict[tuple[int, int], tuple[int, int]] = {}
    waiting: deque[tuple[int, int]] = deque([_PLAYER])
    while waiting:
        cell = waiting.popleft()
        for direction in _FACINGS:
            neighbour = (cell[0] + direction[0], cell[1] + direction[1])
            is_inside = 0 <= neighbour[0] < COLUMNS and 0 <= neighbour[1] < ROWS
            if not is_inside or neighbour in first_steps or neighbour == _PLAYER:
                continue
            first = first_steps.get(cell, direction)
            first_steps[neighbour] = first
            if int(cells[neighbour]) in wanted:
                # A move towards what stands in the way only turns the player to it.
                is_in_reach = cell == _PLAYER and direction == facing
                return _ACTION["do"] if is_in_reach else _MOVES[first]
            if _is_free(cells, neighbour):
                waiting.append(neighbour)
    return None
