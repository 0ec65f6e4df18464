"""Runs of the stages that show episodes."""

from __future__ import annotations

import json

from tests.reward_fixtures import load_config


def run(stage, config, workdir):
    stage.check(config, workdir)
    return stage.run(config, workdir)


def visualize_config(**changes):
    values = {
        "environment.name": "Recall-v0",
        "environment.max_episode_steps": 7,
        "episodes": 2,
    }
    return load_config("visualize", "smoke", {**values, **changes})


def films_of(folder):
    return json.loads((folder / "films.json").read_text())
