"""Batches that were played wholly by the policy that learns from them."""

from __future__ import annotations

import itertools
import os
import select
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.actors.rollouts import RESET_ROW
from motif_jax.rl import settings
from motif_jax.rl.learner import Learner
from motif_jax.rl.system import System
from motif_jax.rl.training import AgentTraining
from motif_jax.stages import train_agent
from motif_jax.support import run_folder
from motif_jax.support.interruption import Interruption
from tests.processes import wait_until
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
    train_agent.check(config, tmp_path)
    run_folder.prepare(tmp_path, config, train_agent.IDENTITY)
    assert AgentTraining(settings.resolved(config), tmp_path).run(Interruption())
    assert len(lags) > 2
    # Each of the two groups of processes plays one rollout an update. Without it the first step of a rollout is played while the rollout before ends.
    assert set(lags[1:]) == ({(0,)} if on_policy else {(0, 1)})


@pytest.mark.slow
def test_a_group_whose_process_dies_while_it_is_held_plays_one_slot_at_a_time() -> None:
    """What it waited with is no more when its environments have begun again."""
    config = settings.resolved(recall_config(actors__workers=1))
    (source,) = System(config).sources
    actors, inference = source.actors, source.inference
    commands: list[Any] = []
    act = actors.act
    actors.act = lambda ready: (commands.extend(ready), act(ready))[1]  # type: ignore[method-assign]
    with actors:
        actors.start()
        inference.compile()
        while len(inference._held) < actors.config.groups:
            inference.serve(0.2, lambda each: True)
        os.kill(actors.pids()[0], signal.SIGKILL)
        wait_until(lambda: select.select([actors._records], [], [], 0)[0], "its successor is up")
        commands.clear()
        slots = actors.config.slots_per_group
        wait_until(
            lambda: (
                (inference.serve(0.05), len(commands))[1]
                >= actors.config.groups * slots * actors.config.rollout
            ),
            "all slots are full",
            interval=0.0,
        )
    of_group = [(slot, row) for group, slot, row in commands if group == 0]
    assert of_group[0][1] == RESET_ROW
    for (slot, row), (following, next_row) in itertools.pairwise(of_group):
        assert (following, next_row) == (slot, row + 1) or (
            row == actors.config.rollout - 1 and next_row == 0
        )
    assert {slot for slot, _ in of_group} == set(range(slots))
