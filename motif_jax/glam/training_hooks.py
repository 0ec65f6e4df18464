"""What GLAM adds to a training of agents: probes, the published log, and a trial of the tests of
generalisation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from motif_jax.core import config as checks
from motif_jax.glam import eval_agents, probing
from motif_jax.glam.log_csv import GlamLog, GlamPosition
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.training_hook import TrainingHook


class ProbeHook(TrainingHook):
    """Writes the policy's answers to the probes (`config.probes`)."""

    def __init__(self, files: probing.ProbeFiles) -> None:
        self._files = files

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        # Refuses prompts that are too long before a training; nothing is asked yet.
        probing.make(config, settings.make_network(config))

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        network: PolicyNetwork,
        workdir: Path,
        progress: Mapping[str, Any],
        clock: Clock,
    ) -> Self | None:
        files = probing.files(config, network, workdir, progress)
        return None if files is None else cls(files)

    def before_update(self, params: Any, update: int, step: int) -> None:
        self._files.write(params, update, step)

    def close(self) -> None:
        self._files.close()


class PublishedLog(TrainingHook):
    """Writes `log.csv` with the columns of the released code (`config.published_files`)."""

    reads_updates = True

    def __init__(self, log: GlamLog) -> None:
        self._log = log

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        """Raises UserError where a run that resumes would not know the newest episode of every
        environment.
        """
        environments = _environments(config)
        allowed = (
            f"at least {environments}, the number of environments: config.published_files writes their newest episodes to log.csv, and "
            "a run that resumes knows as many"
        )
        is_enough = config.stats_episodes >= environments
        checks.require(is_enough, "stats_episodes", config.stats_episodes, allowed)

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        network: PolicyNetwork,
        workdir: Path,
        progress: Mapping[str, Any],
        clock: Clock,
    ) -> Self:
        # DRRN's section has no coefficients: its whole loss is the value's.
        value = getattr(config.algorithm, "value_coefficient", 1.0)
        entropy = getattr(config.algorithm, "entropy_coefficient", 0.0)
        # What a checkpoint says of a run that goes on; empty for a new one.
        updates = progress.get("updates", 0)
        episodes = progress.get("episodes", [])
        position = GlamPosition(updates, episodes, clock.steps, clock.seconds())
        # The symbolic agent's, whose published log has one more column.
        film = getattr(config.network, "encoder", None) == "film"
        scale = config.reward.extrinsic_scale
        return cls(
            GlamLog(workdir, _environments(config), scale, (value, entropy), position, value=film)
        )

    def add_episodes(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._log.add(rows)

    def after_update(
        self, update: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        self._log.write(update, step, seconds, metrics)

    def close(self) -> None:
        self._log.close()


def _environments(config: AgentConfig) -> int:
    """The number of environments that play, on all hosts."""
    return config.actors.workers * config.actors.envs_per_worker * (config.hosts.count or 1)


class GeneralisationTrial(TrainingHook):
    """Tries the prompts and actions of the tests of generalisation before a training
    (`config.tests`).
    """

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        # Only before the first start, since the beginnings of all tests take seconds to play.
        if (workdir / agent_checkpoints.FOLDER).exists():
            return
        for name, reason in eval_agents.refused_after(config).items():
            print(
                f"after this training the test {name} will be left out: {reason}", file=sys.stderr
            )
