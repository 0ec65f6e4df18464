"""Updates that are not finite: left out, said, their batch kept, and never in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.batcher import Batch
from motif_jax.rl.guard import Guard
from motif_jax.rl.learner import Failure, Learner
from motif_jax.rl.training import AgentTraining
from motif_jax.support.checkpoint_items import ANY, JSON
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import Interruption
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BROKEN = {
    "serial": True,
    "reward__kind": "tests.rl.outside_parts:Broken",
    "reward__intrinsic_coefficient": 0.5,
    "train_for_env_steps": 600,
}


def newest(folder: Path) -> tuple[int, dict]:
    with Checkpoints(folder / agent_checkpoints.FOLDER, read_only=True) as checkpoints:
        step = checkpoints.latest()
        return step, checkpoints.restore(step, {"params": ANY, "learner": ANY, "progress": JSON})


def train(folder: Path, **changes: Any) -> AgentTraining:
    """The `BROKEN` run, or what `run` raises."""
    training = AgentTraining(settings.resolved(recall_config(**{**BROKEN, **changes})), folder)
    assert training.run(Interruption())
    return training


@pytest.mark.slow
def test_a_run_ends_with_the_batch_and_the_parameters_before_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"update 2 is not finite: .*nonfinite/step-2\.npz.*skip"):
        train(tmp_path, save_every_steps=1, keep_checkpoints=10)
    with np.load(tmp_path / "nonfinite" / "step-2.npz") as batch:
        assert np.isnan(batch["intrinsic_reward"]).all()
        assert batch["observation/sign"].size
    step, items = newest(tmp_path)
    assert 2 * 100 < step < 600
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((items["params"], items["learner"])))
    with Checkpoints(tmp_path / agent_checkpoints.FOLDER, read_only=True) as checkpoints:
        saved = [
            checkpoints.restore(s, {"params": ANY, "learner": ANY, "progress": JSON})
            for s in checkpoints.steps()
        ]
    # Nothing was learned behind the last good update, and the checkpoint written with the bad one knows of it.
    assert [one["progress"]["updates"] for one in saved] == [1, 2, 3]
    assert [one["progress"]["skipped_updates"] for one in saved] == [0, 0, 1]
    jax.tree.map(np.testing.assert_array_equal, saved[1]["params"], items["params"])
    jax.tree.map(
        np.testing.assert_array_equal, saved[1]["learner"]["opt_state"], items["learner"]["opt_state"]
    )


def test_what_was_allowed_at_its_time_ends_no_run() -> None:
    stop, skip = (settings.resolved(recall_config(nonfinite__policy=name)) for name in ("stop", "skip"))
    batch = cast("Batch", None)
    guard = Guard(skip, None, {})
    for number in range(2):
        guard.check(cast("Learner", SimpleNamespace(failures=[Failure(number, ["loss/total"], batch)])))
    assert not guard.exceeded
    guard = Guard(stop, None, guard.progress())
    guard.require(100)
    guard.check(cast("Learner", SimpleNamespace(failures=[Failure(7, ["loss/total"], batch)])))
    again = Guard(stop, None, guard.progress())
    for ended in (guard, again):
        with pytest.raises(UserError, match=r"update 7 is not finite: loss/total; checkpoint 100 .* above 3"):
            ended.require(100)
    Guard(skip, None, guard.progress()).require(100)


@pytest.mark.slow
def test_a_run_that_may_skip_goes_on_and_knows_how_often(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = settings.resolved(recall_config(**BROKEN, nonfinite__policy="skip", nonfinite__most_skips=1))
    assert AgentTraining(config, tmp_path).run(Interruption())
    assert "left out (1 of at most 1)" in capfd.readouterr().err
    _, items = newest(tmp_path)
    assert items["progress"]["skipped_updates"] == 1
    assert items["progress"]["updates"] == items["learner"]["step"]
