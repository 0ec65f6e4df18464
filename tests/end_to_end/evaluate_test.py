"""Evaluations and replays of folders that hold something else: one line before the run folder is made."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pytest

from motif_jax.actors.rerecording import record_actions
from motif_jax.support.errors import UserError
from tests.reward_fixtures import load_config


@pytest.mark.parametrize(
    ("stage", "values", "said"),
    [
        (
            "evaluate",
            {"policy": "agent", "agent.dir": "FOLDER"},
            "is a run of train_reward, not of train_agent",
        ),
        ("evaluate", {"reward.dir": "FOLDER"}, "checkpoint"),
        ("replay", {"recordings": "FOLDER", "agent.dir": "FOLDER"}, "is not a recording of an episode"),
        (
            "evaluate",
            {"environment.name": "Recall-v0", "compat.sober_mask": True},
            "config.compat.sober_mask=True: must be off on Recall-v0: only the game has published quirks",
        ),
    ],
)
def test_what_folders_hold_is_checked_before_the_run_folder_is_made(tmp_path, stage, values, said):
    wrong, workdir = tmp_path / "wrong", tmp_path / "new"
    record_actions("Recall-v0", {}, 1, np.array([0, 1])).save(wrong / "game.json")
    (wrong / "other.json").write_text("{}")
    trained = load_config("train_reward").to_dict() | {"dataset_dir": "/nowhere"}
    (wrong / "config.json").write_text(json.dumps(trained, default=list))
    config = load_config(stage, "" if stage == "replay" else "smoke")
    config.update_from_flattened_dict({k: str(wrong) if v == "FOLDER" else v for k, v in values.items()})
    with pytest.raises(UserError) as error:
        importlib.import_module(f"motif_jax.stages.{stage}").check(config, workdir)
    assert said in str(error.value)
    assert not workdir.exists()
