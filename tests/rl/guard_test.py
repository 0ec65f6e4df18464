"""Updates that are not finite: left out, said, their batch kept, and never in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jax
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.rl.batcher import Batch
from motif_jax.rl.guard import Guard
from motif_jax.rl.learner import Failure, Learner
from tests.play.agent_runs import recall_config, recall_training
from tests.rl.runs import column, saved, steps_of, train

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_a_run_ends_with_the_batch_and_the_parameters_before_it(tmp_path: Path) -> None:
    broken = {"reward__kind": "tests.rl.outside_parts:Broken", "reward__intrinsic_coefficient": 0.5}
    often = {"serial": True, "save_every_steps": 1, "keep_checkpoints": 10, "train_for_env_steps": 600}
    with pytest.raises(UserError, match=r"update 2 is not finite: .*nonfinite/step-2\.npz.*skip"):
        train(tmp_path, recall_config(**broken, **often))
    with np.load(tmp_path / "nonfinite" / "step-2.npz") as batch:
        assert np.isnan(batch["intrinsic_reward"]).all()
        assert batch["observation/sign"].size
    names, steps = ("params", "learner", "progress"), steps_of(tmp_path)
    assert 2 * 100 < steps[-1] < 600
    every = [saved(tmp_path, *names, step=step)[1] for step in steps]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves([every[2][n] for n in names[:2]]))
    # Nothing was learned behind the last good update, and the checkpoint written with the bad one knows of it.
    assert [one["progress"]["updates"] for one in every] == [1, 2, 3]
    assert [one["progress"]["skipped_updates"] for one in every] == [0, 0, 1]
    two, three = ((each["params"], each["learner"]["opt_state"]) for each in every[1:])
    jax.tree.map(np.testing.assert_array_equal, two, three)


def test_what_was_allowed_at_its_time_ends_no_run() -> None:
    stop, skip = (recall_training(nonfinite__policy=name).nonfinite for name in ("stop", "skip"))
    batch = cast("Batch", None)
    guard = Guard(stop, None, {"skipped_updates": 2, "ended_by": None})
    guard.require(100)
    guard.check(cast("Learner", SimpleNamespace(failures=[Failure(7, ["loss/total"], batch)])))
    again = Guard(stop, None, guard.progress())
    for ended in (guard, again):
        with pytest.raises(UserError, match=r"update 7 is not finite: loss/total; checkpoint 100 .* above 3"):
            ended.require(100)
    Guard(skip, None, guard.progress()).require(100)


def test_three_of_many_names_are_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    skip = recall_training(nonfinite__policy="skip", nonfinite__most_skips=2).nonfinite
    guard = Guard(skip, tmp_path, {"skipped_updates": 1, "ended_by": "before"})
    assert guard.progress() == {"skipped_updates": 1, "ended_by": None, "ended_by_environment": False}
    batch = Batch(column([3], [0], [1], intrinsic=np.nan), 1, [])
    for names in ("abc", "abcde"):
        assert not guard.exceeded
        learner = SimpleNamespace(failures=[Failure(8, list(names), batch)])
        guard.check(cast("Learner", learner))
        assert learner.failures == []
    place = tmp_path / "nonfinite" / "step-8.npz"
    said = f"update 8 is not finite: a, b, c; its batch lies in {place}: left out (2 of at most 2)\n"
    assert capfd.readouterr().err == said
    with pytest.raises(UserError) as raised:
        guard.require(100)
    line = f"update 8 is not finite: a, b, c and 2 more; its batch lies in {place}"
    assert guard.progress() == {"skipped_updates": 3, "ended_by": line, "ended_by_environment": False}
    assert str(raised.value) == (
        f"{line}; checkpoint 100 has the parameters before it: train again with a smaller --config.optimizer.learning_rate, or "
        "continue with --config.nonfinite.policy=skip and --config.nonfinite.most_skips above 3"
    )
    assert not Guard(skip, None, {"skipped_updates": 2, "ended_by": "before"}).exceeded


def test_numbers_of_the_environment_are_not_blamed_on_the_learning_rate(tmp_path: Path) -> None:
    stop = recall_training(nonfinite__policy="stop").nonfinite
    batch = column([3, 1], [0, 0], [0, 1])
    batch = batch._replace(
        reward=np.array([[0.0], [1.0]], np.float32),
        observation={"speed": np.array([[0.0], [np.nan], [1.0]], np.float32)},
    )
    failure = Failure(4, ["loss/total"], Batch(batch, 1, []))
    guard = Guard(stop, tmp_path, {})
    guard.check(cast("Learner", SimpleNamespace(failures=[failure])))
    for ended in (guard, Guard(stop, None, guard.progress())):
        with pytest.raises(UserError, match="the environment gave nan as 'speed'") as error:
            ended.require(100)
        assert "row 1 of a rollout" in str(error.value)
        assert "learning_rate" not in str(error.value)
        assert "mend the environment" in str(error.value)
