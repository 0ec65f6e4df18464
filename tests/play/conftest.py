"""Run folders of agents whose policies are played."""

from __future__ import annotations

import pytest

from motif_jax.core import run_folder
from tests.reward_fixtures import load_config


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The agent runs `run`, of the game, and `horizon`, of cells as many as steps, in the working
    directory.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.json").write_text('{"a": 1.5}')
    rewarded = {
        "reward.kind": "table",
        "reward.table": f"{tmp_path}/table.json",
        "reward.count_exponent": 2.0,
        "reward.intrinsic_coefficient": 0.1,
        "compat.sober_mask": True,
        "compat.quantile_two_decimals": True,
    }
    cells = {"environment.name": "tests.toys:HorizonCorridor", "environment.max_episode_steps": 12}
    for name, variant, changes in (("run", "smoke", rewarded), ("horizon", "recall", cells)):
        config = load_config("train_agent", variant, changes)
        run_folder.describe(tmp_path / name, run_folder.as_plain(config))
    return tmp_path
