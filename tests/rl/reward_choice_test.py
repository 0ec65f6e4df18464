"""An agent that is continued keeps its reward, though the reward run has newer evaluations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.play import agent_policy
from motif_jax.rl import agent_checkpoints, intrinsic, reward_choice, train_agent
from motif_jax.rl.config import agent_config
from tests.play.agent_runs import recall_config
from tests.rl.runs import train


def step_learned_from(config: ConfigDict, folder: Path) -> int:
    return train(folder, config).config.reward.step


def test_a_run_does_not_go_on_with_another_table(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{"You win!": 1}')
    config = agent_config(recall_config(reward__kind="table", reward__table=str(table)))
    progress = {reward_choice.DIGEST: intrinsic.digest(config.reward)}

    reward_choice.refuse_changed(config, progress, "run")
    reward_choice.refuse_changed(config, {}, "run")  # of a version that kept no digest

    table.write_text('{"You win!": -5}')
    with pytest.raises(
        UserError, match=r"^--workdir=run has learned from another content of .*table\.json: "
    ):
        reward_choice.refuse_changed(config, progress, "run")


@pytest.mark.slow
def test_a_run_that_is_continued_keeps_its_reward(trained: Path, tmp_path: Path) -> None:
    reward = shutil.copytree(trained, tmp_path / "reward")
    later = tmp_path / "later"
    evaluations = reward / "checkpoints"
    shutil.move(evaluations / "1", later)
    folder = tmp_path / "agent"
    serial = {"serial": True, "reward__dir": str(reward), "reward__intrinsic_coefficient": 0.1}
    config = recall_config(train_for_env_steps=200, **serial)
    training = agent_config(config)
    young = tmp_path / "without_a_checkpoint"
    assert step_learned_from(config, folder) == 0

    shutil.move(later, evaluations / "1")
    assert reward_choice.with_stored_step(training, folder).reward.step == 0
    with agent_checkpoints.open_checkpoints(young, 5) as checkpoints:
        assert reward_choice.step_of(training, checkpoints) == 1, "a new run takes the newest"
    # It is judged by the reward that it learned from.
    assert agent_policy.read_config(folder).reward.step == 0
    more = recall_config(train_for_env_steps=400, **serial)
    assert step_learned_from(more, folder) == 0

    shutil.rmtree(evaluations / "0")
    with pytest.raises(UserError, match=r"has no checkpoint 0: it has \[1\]"):
        train_agent.check(more, folder)
