"""Runs of the stage `train_agent` in this process, and what they leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.checkpoints import ANY, JSON, Checkpoints
from motif_jax.core.interruption import Interruption
from motif_jax.rl import agent_checkpoints, settings, train_agent
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.config import agent_config
from motif_jax.rl.train_agent import AgentTraining


def column(
    action: Sequence[int], last: Sequence[int], terminated: Sequence[int], intrinsic: float = 0.0
) -> TrajectoryBatch:
    """A batch of one environment, as far as collectors read it."""

    def rows(values: Sequence[int], dtype: Any) -> np.ndarray:
        return np.array(values, dtype)[:, None]

    empty = np.zeros((len(action), 1), bool)
    return TrajectoryBatch(
        observation={}, first=empty, last=rows([*last, 0], bool), action=rows(action, np.int32),
        behaviour_log_prob=empty, behaviour_value=empty, parameter_version=empty, reward=empty,
        intrinsic_reward=empty + np.float32(intrinsic), terminated=rows(terminated, bool), truncated=empty,
        initial_state=None,
    )  # fmt: skip


def prepared(folder: Path, config: ConfigDict) -> AgentTraining:
    train_agent.check(config, folder)
    run_folder.prepare(folder, config, train_agent.IDENTITY)
    return AgentTraining(settings.resolved(agent_config(config)), folder)


def train(folder: Path, config: ConfigDict, stop: Interruption | None = None) -> AgentTraining:
    """The finished run, or the one that `stop` ended."""
    run = prepared(folder, config)
    stop = stop or Interruption()
    assert run.run(stop) != stop.requested
    return run


def saved(folder: Path, *items: str, step: int | None = None) -> tuple[int, dict[str, Any]]:
    """A checkpoint's step, by default the newest's, and items of it."""
    with Checkpoints(folder / agent_checkpoints.FOLDER, read_only=True) as checkpoints:
        step = checkpoints.latest() if step is None else step
        assert step is not None
        return step, checkpoints.restore(step, {n: JSON if n == "progress" else ANY for n in items})


def steps_of(folder: Path) -> list[int]:
    with Checkpoints(folder / agent_checkpoints.FOLDER, read_only=True) as checkpoints:
        return checkpoints.steps()


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
