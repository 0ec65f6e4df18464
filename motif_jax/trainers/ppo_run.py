"""A training by PPO in a text task put together (`text_ppo`), and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax.algorithms import kl_penalty
from motif_jax.devices.parallel import DataParallel
from motif_jax.envs.text import registry
from motif_jax.language.config import ModelConfig
from motif_jax.support import config as checks
from motif_jax.support import digests
from motif_jax.support.interruption import never
from motif_jax.trainers import agent_folder, agent_start, text_run
from motif_jax.trainers.dialogue_data import DialogueSource
from motif_jax.trainers.records import FILE_OF
from motif_jax.trainers.text_ppo import PpoTraining
from motif_jax.trainers.text_run import TextRun


def check(config: ConfigDict) -> None:
    """Raises UserError for values of method ppo that are not allowed."""
    settings = config.ppo
    kl_penalty.check(config, "ppo.kl")
    devices = len(jax.local_devices()[: config.num_devices]) // config.sharding.tensor
    parts = settings.minibatches * config.accumulate * devices
    allowed = f"a multiple of ppo.minibatches x accumulate x devices, {parts}"
    checks.require(config.batch_size % parts == 0, "batch_size", config.batch_size, allowed)
    rules = {
        "dropout": (config.dropout == 0, "0: the policy that plays is the one that learns"),
        "chunk_steps": (config.chunk_steps == 1, "1: each step is played by the policy of the step before"),
        "games.episodes": (config.games.episodes > 0, "above 0: evaluations are episodes"),
        "data": (config.data is None, "None: episodes are played, not read"),
        "initial.value": (not config.initial.value, "None: the value starts anew"),
    }
    for key, (fits, allowed) in rules.items():
        checks.require(fits, key, checks.dotted(config, key), allowed)
    checks.require(
        bool(config.initial.policy or config.network.checkpoint),
        "initial.policy",
        None,
        "a run of train_text that speaks already (bc, say), or config.network.checkpoint a language model",
    )


def build(
    config: ConfigDict,
    workdir: Path,
    source: DialogueSource,
    parallel: DataParallel,
    settings: ModelConfig,
    stopped: Callable[[], bool] = never,
) -> TextRun:
    """The task but for its episodes, which `PpoTraining.rollouts` and `.play` play.

    Raises:
      UserError: runs or a model that do not fit together.
    """
    del workdir, stopped
    task = registry.make(source.task, source.options)
    tokens = agent_folder.vocabulary_of(task)
    objective = text_run.objective_of(config, settings)
    start = agent_start.start(config, objective, tokens, text_run.key_of(config, "parameters"))
    read: dict[str, str] = {f"{FILE_OF}{name}": digests.of_file(path) for name, path in task.files().items()}
    said: dict[str, Any] = {"vocabulary": str(tokens.digest), **read, **start.digests}
    training = PpoTraining(
        config, objective, start, tokens.delimiters.pad, parallel, said, f"the task {config.task}"
    )
    return TextRun(
        training, source, f"{config.batch_size:,} episodes a step", text_run.longest_action(config)
    )
