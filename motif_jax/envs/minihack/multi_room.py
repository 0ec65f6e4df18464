"""Describes levels of rooms in a row, which minigrid draws for each episode."""

from __future__ import annotations

from minigrid.core.grid import Grid
from minigrid.envs import MultiRoomEnv

from motif_jax.core import seeds
from motif_jax.envs.minihack.descriptions import ANYONE, Position, goal, maze, start

# Size of minigrid's map: a terminal without the lines for message and status, and without edges.
_WIDTH = 76
_HEIGHT = 21
_SEEDS = 1 << 31


def describe(
    seed: int, rooms: int, room_size: int, doors: str = "closed", wall: str = "|", monsters: int = 0
) -> str:
    """The level of the episode `seed`; `doors` are 'closed', 'locked' or 'open', `wall` is '|', or
    'L' for lava.
    """
    # As many rooms at least as at most: each level has this number.
    world = MultiRoomEnv(rooms, rooms, room_size, width=_WIDTH, height=_HEIGHT)
    world.reset(seed=seeds.derive(seed, "map") % _SEEDS)
    rows, above, positions = _rows(world.grid, wall)
    x, y = map(int, world.agent_pos)
    return maze(
        rows,
        goal(positions["goal"][0]),
        start((x, y - above)),
        *[f"DOOR:{doors},{position}" for position in positions["door"]],
        "WALLIFY",
        *[ANYONE] * monsters,
    )


def _rows(grid: Grid, wall: str) -> tuple[str, int, dict[str, list[Position]]]:
    """(non-empty rows of the map, number of empty rows above them, positions of goal and doors)."""
    rows = ""
    above = 0
    positions: dict[str, list[Position]] = {"goal": [], "door": []}
    for y in range(grid.height):
        kinds = [getattr(grid.get(x, y), "type", "") for x in range(grid.width)]
        if not any(kinds):
            if not rows:
                above += 1
            continue
        for x, kind in enumerate(kinds):
            if kind in positions:
                positions[kind].append((x, y - above))
        row = "".join({"wall": wall, "door": "+"}.get(kind, ".") for kind in kinds)
        # Outside the first and the last wall is rock.
        row = row.replace(".", " ", row.index(wall))[::-1]
        rows += row.replace(".", " ", row.index(wall))[::-1] + "\n"
    return rows, above, positions
