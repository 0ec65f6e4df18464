"""A reward that changes during training and an update algorithm from outside the package, by 'module:Class' alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.rl.learner import Learner
from motif_jax.rl.training import AgentTraining
from motif_jax.rollouts import agent_policy
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import Interruption
from motif_jax.support.metrics import read_metrics
from tests.rl import outside_parts, runs
from tests.rl.runs import saved
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

FAMILIAR = {
    "reward__kind": "tests.rl.outside_parts:Familiar",
    "reward__intrinsic_coefficient": 0.5,
    "save_every_steps": 200,
}
REINFORCE = {"algorithm__name": "tests.rl.outside_parts:Reinforce"}


def train(folder: Path, **changes: Any) -> AgentTraining:
    return runs.train(folder, recall_config(serial=True, **changes))


@pytest.mark.extra
def test_a_reward_that_changes_learns_and_goes_on_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CrashError(Exception):
        pass

    versions: list[int] = []
    step = Learner.step

    def crash(self: Learner, batch: Any) -> None:
        versions.append(batch.reward_version)
        if self.version == 4:
            raise CrashError
        step(self, batch)

    monkeypatch.setattr(Learner, "step", crash)
    run = runs.prepared(tmp_path, recall_config(**FAMILIAR, serial=True, train_for_env_steps=2_000))
    with pytest.raises(CrashError):
        run.run(Interruption())
    assert versions == [0, 1, 2, 3, 4], "each batch knows the version of its reward"
    assert run.system is not None
    reward = run.system.reward
    assert isinstance(reward, outside_parts.Familiar)
    env_steps, items = saved(tmp_path, "reward")
    state = items["reward"]
    assert 0 < env_steps < 2_000
    assert 0 < state["version"] < reward.version, "what came after the checkpoint is lost"

    monkeypatch.setattr(Learner, "step", step)
    run = train(tmp_path, **FAMILIAR, train_for_env_steps=1_000, log_every_seconds=1e-9)
    assert run.system is not None
    reward = run.system.reward
    assert isinstance(reward, outside_parts.Familiar)
    assert reward.restored_at == state["version"]
    assert sum(reward.counts.values()) > 1_000 > state["counts"].sum()
    returns = [row["intrinsic_return"] for row in runs.episodes(tmp_path)]
    earned = [value for value in returns if value is not None]
    assert np.mean(earned[-10:]) > np.mean(earned[:10])
    metrics = list(read_metrics(tmp_path))
    assert all("familiar/texts" in row for row in metrics)
    # Of the batch that was learned from last, not of the reward by then: an update a version.
    assert [row["reward/version"] for row in metrics] == [row["time/updates"] - 1 for row in metrics]
    assert metrics[-1]["reward/version"] > state["version"]


@pytest.mark.slow
def test_what_no_part_takes_up_is_refused(tmp_path: Path) -> None:
    train(tmp_path, **FAMILIAR, train_for_env_steps=200)
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match=r"holds reward, which this version and config do not use"):
        train(tmp_path, train_for_env_steps=400)
    other = tmp_path / "other"
    train(other, train_for_env_steps=200)
    (other / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no reward: it has .*params"):
        train(other, **FAMILIAR, train_for_env_steps=400)


@pytest.mark.extra
def test_an_algorithm_from_outside_learns_is_saved_and_plays(tmp_path: Path) -> None:
    # The baseline is all that this algorithm keeps besides the parameters.
    for total in (600, 1_200):
        run = train(tmp_path, **REINFORCE, train_for_env_steps=total, optimizer__learning_rate=0.1)
    assert run.system is not None
    env_steps, items = saved(tmp_path, "learner")
    learner = items["learner"]
    assert env_steps >= 1_200
    assert set(learner) == {"step", "baseline"}
    assert learner["step"] == run.system.learner.version > 1_200 // 128
    assert learner["baseline"] > 0
    _, step = agent_policy.load(tmp_path)
    assert step == env_steps
