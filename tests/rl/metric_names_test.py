"""Every row of a training's metrics.jsonl has the names of docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motif_jax.core.metrics import read_metrics
from tests.reward_fixtures import REPOSITORY, load_config
from tests.rl.runs import train


@pytest.mark.extra
def test_rows_of_a_training_with_a_reward(trained: Path, tmp_path: Path) -> None:
    config = load_config("train_agent")
    config.reward.dir = str(trained)
    config.reward.intrinsic_coefficient = 0.1
    config.serial = True
    config.log_every_seconds = 1e-9
    config.train_for_env_steps = 512
    config.environment.max_episode_steps = 40
    config.devices.learner = "0"
    # A network that is compiled fast.
    config.network.encoder = "flat"
    config.network.flat_sizes = (16,)
    config.network.hidden_size = 16
    train(tmp_path / "agent", config)
    rows = list(read_metrics(tmp_path / "agent"))
    section = (
        (REPOSITORY / "docs/metrics.md").read_text(encoding="utf-8").split("\n## Agent training")[1]
    )
    table = re.split("\n##+ ", section)[0].splitlines()
    named = re.findall(
        r"`([^`]+)`", " ".join(x.split("|")[1] for x in table if x.startswith("| `"))
    )
    of_gym = {"episode/captions_cut"}
    of_gpus = {"learner/mfu", "throughput/mfu"}
    for row in rows:
        assert set(row) == set(named) - of_gym - of_gpus | {"step", "time"}
    for name in ("episode/return", "episode/intrinsic_return"):
        assert rows[0][name] is None
        assert rows[-1][name] is not None
