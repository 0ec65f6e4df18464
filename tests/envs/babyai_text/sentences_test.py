from __future__ import annotations

import numpy as np

from motif_jax.envs.babyai_text.sentences import clauses
from tests.conftest import load_golden


def test_every_observation_of_the_published_environment_and_hand_made_scenes():
    scenes = load_golden("glam_scenes.json")["scenes"]
    assert {scene["language"] for scene in scenes} == {"english", "french"}
    episodes = load_golden("glam_obs.json")["episodes"]
    steps = [step | {"language": episode["language"]} for episode in episodes for step in episode["steps"]]
    for shown in steps + scenes:
        view = np.array(shown["image"], np.uint8).reshape(7, 7, 3)
        carried = shown["carrying"] and tuple(shown["carrying"])
        assert clauses(view, carried, shown["language"]) == shown["clauses"]
