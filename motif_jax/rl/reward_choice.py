"""Keeps the reward of an agent's run: a resumed run takes the evaluation of the reward's run that
its checkpoint names, and refuses another content of it.

A reward run that resumes makes newer evaluations, and files are written again; neither may change
the reward of a running agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.rl import agent_checkpoints, intrinsic
from motif_jax.rl.config import AgentConfig

# Entries of a checkpoint's progress: the evaluation that the run learns from, and
# `intrinsic.digest` of the reward.
STEP = "reward_step"
DIGEST = "reward_digest"


def step_of(config: AgentConfig, checkpoints: Checkpoints) -> int | None:
    """The evaluation that a run learns from: that of its newest checkpoint; of a new run, the one
    that the reward's kind pins.
    """
    if not config.reward.dir:
        return None
    step = _stored_step(checkpoints)
    return intrinsic.kind_of(config.reward).step_to_pin(config.reward) if step is None else step


def stored_step(workdir: str | os.PathLike[str]) -> int | None:
    """The evaluation that the agent run in `workdir` learns from, None before its first
    checkpoint.
    """
    folder = Path(workdir) / agent_checkpoints.FOLDER
    if not folder.is_dir():
        return None
    with Checkpoints(folder, keep=None, read_only=True) as checkpoints:
        return _stored_step(checkpoints)


def _stored_step(checkpoints: Checkpoints) -> int | None:
    latest = checkpoints.latest()
    if latest is None:
        return None
    return agent_checkpoints.restore_progress(checkpoints, latest).get(STEP)


def with_stored_step(config: AgentConfig, workdir: str | os.PathLike[str]) -> AgentConfig:
    """A copy of a `train_agent` config whose `reward.step` is the `stored_step`, if there is
    one.
    """
    step = stored_step(workdir)
    return config if step is None else replace(config, reward=replace(config.reward, step=step))


def refuse_changed(
    config: AgentConfig, progress: Mapping[str, Any], workdir: str | os.PathLike[str] | None
) -> None:
    """Raises UserError where the files of the reward are others than those of the checkpoint with
    this `progress`.
    """
    before = progress.get(DIGEST)
    if before is None or before == intrinsic.digest(config.reward):
        return
    files = ", ".join(map(str, intrinsic.kind_of(config.reward).files(config.reward)))
    raise UserError(
        f"--workdir={workdir} has learned from another content of {files}: restore it, or begin in another --workdir"
    )
