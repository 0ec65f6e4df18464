"""No stage takes the work folder of another one."""

from __future__ import annotations

import pytest

from motif_jax import stages
from motif_jax.core import run_folder
from motif_jax.core.errors import UserError
from tests.reward_fixtures import load_config

STAGES = [name for name in stages.names() if getattr(stages.module(name), "NEEDS_WORKDIR", True)]


@pytest.mark.parametrize("stage", STAGES)
def test_a_folder_of_another_stage_is_refused_first(tmp_path, stage):
    written = {"stage": "train_agent" if stage != "train_agent" else "train_reward", "seed": 5}
    run_folder.write_config(tmp_path, written)
    config = load_config(stage, "")
    if "file" in config:  # an import asks first for what it imports
        config.file = str(tmp_path / "config.json")
    with pytest.raises(UserError, match=f"holds a run of {written['stage']}"):
        stages.module(stage).check(config, tmp_path)
    assert run_folder.read_config(tmp_path) == written
