"""Updates that are not finite: skipped and printed, their batch saved, and never in a
checkpoint.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.rl.batcher import Batch
from motif_jax.rl.learner import Failure, Guard, Learner
from tests.play.agent_runs import recall_config, recall_training
from tests.rl.runs import saved, steps_of, train


@pytest.mark.slow
def test_a_diverged_run_keeps_its_batch_and_earlier_parameters(tmp_path: Path) -> None:
    broken = {"reward__kind": "tests.rl.outside_parts:Broken", "reward__intrinsic_coefficient": 0.5}
    often = {
        "serial": True,
        "save_every_steps": 1,
        "keep_checkpoints": 10,
        "train_for_env_steps": 600,
    }
    with pytest.raises(UserError, match=r"update 2 is not finite: .*nonfinite/step-2\.npz.*skip"):
        train(tmp_path, recall_config(**broken, **often))
    with np.load(tmp_path / "nonfinite" / "step-2.npz") as batch:
        assert np.isnan(batch["intrinsic_reward"]).all()
        assert batch["observation/sign"].size
    # Nothing was learned after the last finite update, and the checkpoint written with the other
    # one says so.
    steps = steps_of(tmp_path)
    assert 2 * 100 < steps[-1] < 600
    first, second, third = (
        saved(tmp_path, "params", "learner", "progress", step=step)[1] for step in steps
    )
    assert [items["progress"]["updates"] for items in (first, second, third)] == [1, 2, 3]
    assert [items["progress"]["skipped_updates"] for items in (first, second, third)] == [0, 0, 1]
    leaves = jax.tree.leaves([third["params"], third["learner"]])
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    jax.tree.map(np.testing.assert_array_equal, second["params"], third["params"])
    jax.tree.map(
        np.testing.assert_array_equal, second["learner"]["opt_state"], third["learner"]["opt_state"]
    )


@dataclasses.dataclass
class FailedLearner:
    """A `Learner` as far as a guard reads it."""

    failures: list[Failure]

    def rows_of(self, failure: Failure) -> Any:
        return failure.batch.trajectories


def failed(*failures: Failure) -> Learner:
    return cast("Learner", FailedLearner(list(failures)))


def test_updates_that_were_skipped_before_end_no_run() -> None:
    stop = recall_training(nonfinite__policy="stop").nonfinite
    Guard(stop, None, {"skipped_updates": 2, "ended_by": None}).require(100)


def test_a_run_that_ended_resumes_only_with_another_limit() -> None:
    stop = recall_training(nonfinite__policy="stop").nonfinite
    skip = recall_training(nonfinite__policy="skip").nonfinite
    guard = Guard(stop, None, {"skipped_updates": 2, "ended_by": None})
    guard.check(failed(Failure(7, ["loss/total"], cast("Batch", None))))

    message = r"update 7 is not finite: loss/total; checkpoint 100 .* above 3"
    for ended in (guard, Guard(stop, None, guard.progress())):
        with pytest.raises(UserError, match=message):
            ended.require(100)
    Guard(skip, None, guard.progress()).require(100)


@pytest.fixture
def skipping(tmp_path: Path) -> Guard:
    """Of a run that has skipped one of at most two updates."""
    skip = recall_training(nonfinite__policy="skip", nonfinite__most_skips=2).nonfinite
    return Guard(skip, tmp_path, {"skipped_updates": 1, "ended_by": "before"})


def test_a_resume_with_a_higher_limit_forgets_the_end(skipping: Guard) -> None:
    assert skipping.progress() == {
        "skipped_updates": 1,
        "ended_by": None,
        "ended_by_environment": False,
    }
