"""Batches that were played wholly by the policy that learns from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.rl.learner import Learner
from tests.rl.runs import train
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize(("serial", "on_policy"), [(True, True), (True, False), (False, True)])
@pytest.mark.slow
def test_the_parameters_behind_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serial: bool, on_policy: bool
) -> None:
    lags: list[tuple[int, ...]] = []
    step = Learner.step

    def note(self: Learner, batch: Any) -> None:
        version = np.asarray(batch.trajectories.parameter_version)
        lags.append(tuple(np.unique(self.version - version[version >= 0]).tolist()))
        step(self, batch)

    monkeypatch.setattr(Learner, "step", note)
    config = recall_config(
        serial=serial, on_policy=on_policy, batch_size=96, train_for_env_steps=300, algorithm__epochs=1
    )
    train(tmp_path, config)
    assert len(lags) > 2
    # Each of the two groups of processes plays one rollout an update. Without it the first step of a rollout is played while the rollout before ends.
    assert set(lags[1:]) == ({(0,)} if on_policy else {(0, 1)})
