"""Clauses of golden observations and hand-made scenes, in both languages."""

from __future__ import annotations

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import WorldObj

from motif_jax.envs.babyai_text import catalogue
from motif_jax.envs.babyai_text.levels import build
from motif_jax.envs.babyai_text.sentences import clauses
from tests.conftest import load_golden


def view(codes: list[int]) -> np.ndarray:
    return np.array(codes, np.uint8).reshape(7, 7, 3)


def thing(carrying: list[str] | None) -> tuple[str, str] | None:
    return None if carrying is None else (carrying[0], carrying[1])


def test_every_observation_of_the_published_environment():
    episodes = load_golden("glam_obs.json")["episodes"]
    for episode in episodes:
        for step in episode["steps"]:
            said = clauses(view(step["image"]), thing(step["carrying"]), episode["language"])
            assert said == step["clauses"]


def test_hand_made_scenes_in_both_languages():
    scenes = load_golden("glam_scenes.json")["scenes"]
    assert {scene["language"] for scene in scenes} == {"english", "french"}
    for scene in scenes:
        said = clauses(view(scene["image"]), thing(scene["carrying"]), scene["language"])
        assert said == scene["clauses"], (scene["index"], scene["scene_kind"])


def test_the_scenes_are_seen_so_from_their_grids():
    level = catalogue.find("BabyAI-GoToLocal-v0")
    assert level is not None
    world = build(level, None)
    world.reset(seed=0)
    for scene in load_golden("glam_scenes.json")["scenes"]:
        world.grid = Grid(*scene["grid_size"])
        for name, color, x, y, state in scene["grid_objects"]:
            world.grid.set(x, y, WorldObj.decode(OBJECT_TO_IDX[name], COLOR_TO_IDX[color], state))
        held = scene["carrying"]
        world.carrying = held and WorldObj.decode(OBJECT_TO_IDX[held[0]], COLOR_TO_IDX[held[1]], 0)
        world.agent_pos, world.agent_dir = np.array(scene["agent_pos"]), scene["agent_dir"]
        assert world.gen_obs()["image"].reshape(-1).tolist() == scene["image"]
