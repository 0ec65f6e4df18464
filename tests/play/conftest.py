"""Run folders of agents whose policies are played, and the terminal that shows episodes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from motif_jax.core import run_folder
from motif_jax.play import visualize
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


@pytest.fixture
def stream(monkeypatch):
    """What visualize prints on a terminal of 24 lines."""
    stream = io.StringIO()
    console = Console(file=stream, width=100, height=24, force_terminal=True, color_system=None)
    monkeypatch.setattr(visualize, "Console", lambda: console)
    return stream
