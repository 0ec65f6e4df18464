"""Clauses of golden observations and hand-made scenes, in both languages."""

from __future__ import annotations

import numpy as np

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
