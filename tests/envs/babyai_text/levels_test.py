"""Levels draw as the published fork does: missions, grids, first observations and whole episodes
from their seeds.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.babyai_text.levels import build
from motif_jax.envs.babyai_text.sentences import COLORS, OBJECTS
from tests.conftest import load_golden
from tests.sets import extra

MISSIONS = load_golden("glam_missions.json")["groups"]
EPISODES = load_golden("glam_traces.json")
WALK = load_golden("glam_obs.json")
PARTS = ("strict", "instr_a", "instr_b", "desc", "desc_move", "desc_fixed")


def level(name: str, kind: str | None) -> Any:
    return build(catalogue.find(name), kind)


def pose(world: Any) -> list[int]:
    return [int(world.agent_pos[0]), int(world.agent_pos[1]), int(world.agent_dir)]


def cells(world: Any) -> list[tuple[Any, int, int]]:
    """What stands in the grid, row by row."""
    rows = range(world.grid.height)
    columns = range(world.grid.width)
    return [
        (thing, x, y) for y in rows for x in columns if (thing := world.grid.get(x, y)) is not None
    ]


def walls(world: Any) -> list[list[int]]:
    return sorted([x, y] for thing, x, y in cells(world) if thing.type == "wall")


def objects(world: Any) -> list[list[Any]]:
    """Type, colour, place, and the state of doors."""
    return [
        [thing.type, thing.color, x, y, *([thing.encode()[2]] if thing.type == "door" else [])]
        for thing, x, y in cells(world)
        if thing.type != "wall"
    ]


def carried(world: Any) -> list[str] | None:
    return None if world.carrying is None else [world.carrying.type, world.carrying.color]


def described(instruction: Any, strict: bool = False) -> dict[str, Any]:
    """An instruction as the golden files write it, one of them with the attribute `strict`."""
    content: dict[str, Any] = {"cls": type(instruction).__name__}
    parts = {part: getattr(instruction, part) for part in PARTS if hasattr(instruction, part)}
    for part, value in parts.items():
        if part.startswith("instr"):
            content[part] = described(value, strict)
        elif part.startswith("desc"):
            content[part] = [value.type, value.color]
        elif strict:
            content[part] = value
    return content


def slowest_apart(group: dict[str, Any]) -> Any:
    """The missions of two kinds of a level take as long as all others together: `--all` alone draws
    them.
    """
    is_slow = group["level"] == "BabyAI-MixedTestLocal-v0" and group["kind"] in (
        "putnext",
        "pick up seq go to",
    )
    return extra(group) if is_slow else group


@pytest.mark.slow
@pytest.mark.parametrize(
    "group",
    [slowest_apart(group) for group in MISSIONS],
    ids=lambda group: f"{group['level']}-{group['kind']}",
)
def test_a_hundred_missions_from_their_seeds(group):
    world = level(group["level"], group["kind"])
    sizes = ([world.width, world.height], world.room_size, world.num_rows, world.num_cols)
    assert sizes == tuple(
        group[name] for name in ("grid_size", "room_size", "num_rows", "num_cols")
    )
    for wanted in group["missions"]:
        world.reset(seed=wanted["seed"])
        assert (world.mission, described(world.instrs)) == (wanted["mission"], wanted["instr"])
        assert (pose(world), world.max_steps) == (wanted["agent"], wanted["max_steps"])
        assert objects(world) == wanted["objects"]
    assert walls(world) == sorted(group["walls_of_last_mission"])


@pytest.mark.parametrize("episode", EPISODES["episodes"])
def test_whole_episodes_from_their_seeds(episode):
    world = level(episode["level"], episode["kind"])
    world.reset(seed=episode["seed"])
    assert (world.mission, described(world.instrs, strict=True)) == (
        episode["mission"],
        episode["instr"],
    )
    assert (world.max_steps, [world.width, world.height]) == (
        episode["max_steps"],
        episode["grid_size"],
    )
    assert (pose(world), objects(world)) == (episode["agent"], episode["objects"])
    assert walls(world) == sorted(episode["walls"])
    assert EPISODES["step_fields"] == [
        "agent_x",
        "agent_y",
        "agent_dir",
        "carrying",
        "reward",
        "done",
    ]
    for action, wanted in zip(episode["actions"], episode["steps"], strict=True):
        _, reward, terminated, truncated, _ = world.step(action)
        assert [*pose(world), " ".join(reversed(carried(world) or []))] == [
            *wanted[:3],
            wanted[3] or "",
        ]
        assert (reward, terminated or truncated) == (pytest.approx(wanted[4], abs=1e-12), wanted[5])
    assert objects(world) == episode["final_objects"]


@pytest.mark.parametrize("episode", WALK["episodes"])
def test_first_observations_and_what_follows_from_their_seeds(episode):
    names = "unseen empty wall floor door key ball box goal lava agent".split()
    assert list(OBJECTS) == names == list(WALK["object_index"])
    assert list(COLORS) == "red green blue purple yellow grey".split() == list(WALK["color_index"])
    world = level(episode["level"], episode["kind"])
    observation, _ = world.reset(seed=episode["seed"])
    assert [world.width, world.height, world.max_steps] == [
        *episode["grid_size"],
        episode["max_steps_limit"],
    ]
    actions = WALK["action_names"]
    assert [action.name for action in world.actions][: len(actions)] == actions
    for before, after in zip([None, *episode["steps"]], episode["steps"], strict=False):
        if before is not None:
            # Episodes of turning keep the first three and the last four steps: all turn left.
            for _ in range(after["step"] - before["step"]):
                observation, reward, terminated, truncated, _ = world.step(before["action"])
            ended = (pytest.approx(reward, abs=1e-12), terminated or truncated)
            if after["step"] == before["step"] + 1:
                assert ended == (before["reward"], before["done"])
        assert observation["image"].reshape(-1).tolist() == after["image"]
        assert (observation["mission"], carried(world)) == (after["mission"], after["carrying"])
        assert pose(world) == [*after["agent_pos"], after["agent_dir"]]


def test_ours_are_known_by_no_other_name():
    registered = {name for name in gymnasium.registry if name.startswith(catalogue.PREFIX)}
    assert registered == set(catalogue.minigrid_names())
    assert not registered & set(catalogue.LEVELS)
    assert catalogue.find("BabyAI-NoSuch-v0") is None
