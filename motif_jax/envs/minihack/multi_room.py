"""Describes levels of rooms in a row, which minigrid draws for each episode."""

from __future__ import annotations

from minigrid.core.grid import Grid
from minigrid.envs import MultiRoomEnv

from motif_jax.core import seeds
from motif_jax.envs.minihack.descriptions import ANYONE, Place, goal, maze, start

# Size of minigrid's map: a terminal without the lines for message and status, and without edges.
_WIDTH, _HEIGHT = 76, 21
_SEEDS = 1 << 31


def describe(
    seed: int, rooms: int, room_size: int, doors: str = "closed", wall: str = "|", monsters: int = 0
) -> str:
    """The level of the episode `seed`; `doors` are 'closed', 'locked' or 'open', `wall` is '|', or 'L' for lava."""
    drawn = MultiRoomEnv(rooms, rooms, room_size, width=_WIDTH, height=_HEIGHT)
    drawn.reset(seed=seeds.derive(seed, "map") % _SEEDS)
    rows, above, found = _rows(drawn.grid, wall)
    x, y = map(int, drawn.agent_pos)
    return maze(
        rows,
        goal(found["goal"][0]),
        start((x, y - above)),
        *[f"DOOR:{doors},{place}" for place in found["door"]],
        "WALLIFY",
        *[ANYONE] * monsters,
    )


def _rows(grid: Grid, wall: str) -> tuple[str, int, dict[str, list[Place]]]:
    """(non-empty rows of the map, number of empty rows above them, places of goal and doors)."""
    rows, above = "", 0
    found: dict[str, list[Place]] = {"goal": [], "door": []}
    for j in range(grid.height):
        kinds = [getattr(grid.get(i, j), "type", "") for i in range(grid.width)]
        if not any(kinds):
            above += not rows
            continue
        for i, kind in enumerate(kinds):
            if kind in found:
                found[kind].append((i, j - above))
        row = "".join({"wall": wall, "door": "+"}.get(kind, ".") for kind in kinds)
        # Outside the first and the last wall is rock.
        row = row.replace(".", " ", row.index(wall))[::-1]
        rows += row.replace(".", " ", row.index(wall))[::-1] + "\n"
    return rows, above, found
