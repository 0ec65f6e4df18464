"""Clauses of golden observations and hand-made scenes, in both languages."""

from __future__ import annotations

import numpy as np
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import WorldObj

from motif_jax.envs.babyai_text.sentences import clauses
from tests.conftest import load_golden
from tests.envs.babyai_text.levels_test import level


def test_every_observation_of_the_published_environment_and_hand_made_scenes():
    scenes = load_golden("glam_scenes.json")["scenes"]
    assert {scene["language"] for scene in scenes} == {"english", "french"}
    episodes = load_golden("glam_obs.json")["episodes"]
    steps = [
        step | {"language": episode["language"]}
        for episode in episodes
        for step in episode["steps"]
    ]
    for shown in steps + scenes:
        view = np.array(shown["image"], np.uint8).reshape(7, 7, 3)
        carried = shown["carrying"] and tuple(shown["carrying"])
        assert clauses(view, carried, shown["language"]) == shown["clauses"]


def test_the_scenes_are_seen_so_from_their_grids():
    world = level("BabyAI-GoToLocal-v0", None)
    world.reset(seed=0)
    for scene in load_golden("glam_scenes.json")["scenes"]:
        world.grid = Grid(*scene["grid_size"])
        for name, color, x, y, state in scene["grid_objects"]:
            world.grid.set(x, y, WorldObj.decode(OBJECT_TO_IDX[name], COLOR_TO_IDX[color], state))
        held = scene["carrying"]
        world.carrying = held and WorldObj.decode(OBJECT_TO_IDX[held[0]], COLOR_TO_IDX[held[1]], 0)
        world.agent_pos = np.array(scene["agent_pos"])
        world.agent_dir = scene["agent_dir"]
        named = (scene["index"], scene["scene_kind"])
        assert world.gen_obs()["image"].reshape(-1).tolist() == scene["image"], named
