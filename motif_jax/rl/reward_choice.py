"""Pins, when an agent's run begins, the evaluation of the reward run that it learns from.

A reward run that resumes makes newer evaluations, and files are written again; a resumed agent must
keep its reward.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json, read_json
from motif_jax.rl import agent_checkpoints, reward_kinds
from motif_jax.rl.config import AgentConfig

FILE = "plan.json"
STEP = "reward_step"
# Entry of the progress: `reward_kinds.digest` of the reward that the run learns from.
DIGEST = "reward_digest"


def pinned_step(workdir: str | os.PathLike[str]) -> int | None:
    """The evaluation that the agent run in `workdir` is pinned to, None before it is."""
    path = Path(workdir) / FILE
    if not path.exists():
        return None
    remedy = "remove it, and the newest checkpoint says again which evaluation of the reward the run learns from"
    step = read_json(path, remedy, keys=[STEP])[STEP]
    if type(step) is not int:
        raise UserError(f"{path} is damaged ({STEP} is {step!r}): {remedy}")
    return step


def with_pinned_step(config: AgentConfig, workdir: str | os.PathLike[str]) -> AgentConfig:
    """A copy of a `train_agent` config whose `reward.step` is the one pinned in `workdir`, if there
    is one.
    """
    step = pinned_step(workdir)
    return config if step is None else replace(config, reward=replace(config.reward, step=step))


def pin_step(
    config: AgentConfig, workdir: str | os.PathLike[str], checkpoints: Checkpoints
) -> int | None:
    """Writes down, once, which evaluation the run learns from: that of its newest checkpoint, else
    the reward's `step_to_pin`.
    """
    path = Path(workdir) / FILE
    latest = checkpoints.latest()
    if not config.reward.dir or path.exists():
        return pinned_step(workdir)
    # Where the file was removed, the checkpoint knows what the run has learned from.
    step = (
        None
        if latest is None
        else agent_checkpoints.restore_progress(checkpoints, latest).get(STEP)
    )
    if step is None:
        step = reward_kinds.kind_of(config.reward).step_to_pin(config.reward)
    if step is not None:
        atomic_write_json(path, {STEP: step})
    return step


def refuse_changed(
    config: AgentConfig, progress: Mapping[str, Any], workdir: str | os.PathLike[str] | None
) -> None:
    """Raises UserError where the files of the reward are others than those of the checkpoint with
    this `progress`.
    """
    before = progress.get(DIGEST)
    if before is None or before == reward_kinds.digest(config.reward):
        return
    files = ", ".join(map(str, reward_kinds.kind_of(config.reward).files(config.reward)))
    raise UserError(
        f"--workdir={workdir} has learned from another content of {files}: restore it, or begin in another --workdir"
    )
