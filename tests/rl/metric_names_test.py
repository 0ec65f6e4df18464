"""Every row of a training's metrics.jsonl has the names of docs/metrics.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from motif_jax.support.metrics import read_metrics
from tests.reward_fixtures import REPOSITORY, load_config
from tests.rl.runs import train
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ALWAYS = {"step", "time"}
OF_NETHACK = {"turns", "score", "dlvl", "gold", "xlvl", "scout", "hallucination", "kills"}
OF_GYM = {"captions_cut"}


def documented(heading: str) -> set[str]:
    """The names in the first column of the table below `heading`."""
    section = (REPOSITORY / "docs/metrics.md").read_text(encoding="utf-8").split(f"\n## {heading}")[1]
    cells = [
        line.split("|")[1] for line in re.split("\n##+ ", section)[0].splitlines() if line.startswith("| `")
    ]
    return set(re.findall(r"`([^`]+)`", " ".join(cells)))


@pytest.mark.extra
def test_rows_of_a_training_without_rewards_of_its_own(tmp_path: Path) -> None:
    absent = {"reward/version"} | {f"episode/{name}" for name in {*OF_NETHACK, *OF_GYM, "intrinsic_return"}}
    for steps in (300, 600):
        config = recall_config(serial=True, train_for_env_steps=steps, log_every_seconds=1e-9)
        train(tmp_path, config)
    rows = list(read_metrics(tmp_path))
    for row in rows:
        assert set(row) == documented("Agent training") - absent | ALWAYS
    assert [row["time/updates"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.extra
def test_rows_of_a_training_with_a_reward(trained: Path, tmp_path: Path) -> None:
    config = load_config("train_agent")
    config.reward.dir, config.reward.intrinsic_coefficient = str(trained), 0.1
    config.serial, config.log_every_seconds, config.train_for_env_steps = True, 1e-9, 512
    config.environment.max_episode_steps = 40
    config.devices.learner, config.compile_cache = "0", ""
    # A network that is compiled fast.
    config.network.encoder, config.network.flat_sizes, config.network.hidden_size = "flat", (16,), 16
    train(tmp_path / "agent", config)
    rows = list(read_metrics(tmp_path / "agent"))
    for row in rows:
        assert set(row) == documented("Agent training") - {f"episode/{name}" for name in OF_GYM} | ALWAYS
    for name in ("episode/return", "episode/intrinsic_return"):
        assert rows[0][name] is None
        assert rows[-1][name] is not None
