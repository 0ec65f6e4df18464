"""What GLAM adds to a training of agents: probes, the published log, and a trial of the tests of
generalisation.
"""

from __future__ import annotations

import csv
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from motif_jax.core import config as checks
from motif_jax.core.files import append_lines
from motif_jax.glam import eval_agents, probing
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import agent_checkpoints, settings
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.run_writer import TrainingHook

# The published tool's log, and its columns.
FILE = "log.csv"
_STATISTICS = ("mean", "std", "min", "max")
COLUMNS = (
    "update", "episodes", "frames", "FPS", "duration",
    *(f"return_{name}" for name in _STATISTICS),
    "success_rate",
    *(f"reshaped_return_{name}" for name in _STATISTICS),
    *(f"reshaped_return_bonus_{name}" for name in _STATISTICS),
    *(f"num_frames_{name}" for name in _STATISTICS),
    "entropy", "policy_loss", "value_loss", "loss", "grad_norm",
)  # fmt: skip
_VALUE = "value"


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


class GlamPosition(NamedTuple):
    """Where a log is resumed: finished updates, rows of the newest episodes, environment steps and
    seconds.
    """

    updates: int = 0
    newest: Sequence[Mapping[str, Any]] = ()
    steps: int = 0
    seconds: float = 0.0


class GlamLog:
    """Writes the published tool's `log.csv`: a row per update, with its column names.

    Statistics are over the episodes that ended in the update. If these are fewer than the
    environments, earlier episodes and then zeros fill them up, as published. The symbolic agent's
    log has one more column, `value`, here the mean value of the batch during play. DRRN has no
    policy loss (0); its value loss is that of Q.

    Args:
      scale: factor on rewards in learning.
      coefficients: weights of value loss and entropy in the loss.
      before: where the log is resumed.
      value: whether there is the symbolic agent's column.
    """

    def __init__(
        self,
        folder: Path,
        environments: int,
        scale: float,
        coefficients: tuple[float, float],
        before: GlamPosition = GlamPosition(),  # noqa: B008
        value: bool = False,
    ) -> None:
        self._scale = scale
        self._coefficients = coefficients
        self._environments = environments
        self._episodes = 0
        columns = list(COLUMNS)
        if value:
            columns.insert(columns.index("entropy") + 1, _VALUE)

        def keep(line: str) -> bool:
            update = line.partition(",")[0]
            if update == COLUMNS[0]:
                columns[:] = line.split(",")  # a resumed log keeps its columns
            # The number of episodes goes on from the last line that stays.
            if update.isdigit() and int(update) < before.updates:
                self._episodes = int(line.split(",")[1])
            return not update.isdigit() or int(update) < before.updates

        # Lines of updates after the checkpoint are cut off: they are played again.
        self._file = append_lines(folder / FILE, keep)
        self._writer = csv.DictWriter(
            self._file, columns, extrasaction="ignore", lineterminator="\n"
        )
        if self._file.tell() == 0:
            self._writer.writeheader()
        nothing = [{"return": 0.0, "length": 0.0}] * environments
        self._newest: deque[Mapping[str, Any]] = deque(
            [*nothing, *before.newest], maxlen=environments
        )
        self._ended: list[Mapping[str, Any]] = []
        self._frames = before.steps
        self._seconds = before.seconds

    def add(self, episodes: Iterable[Mapping[str, Any]]) -> None:
        """Adds the rows of episodes that ended in the current update."""
        self._ended += episodes

    def write(self, update: int, frames: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Writes the row of an update (from 0); `frames` are environment steps and `seconds` of the
        run after it.
        """
        self._episodes += len(self._ended)
        # All that ended in this update, or the newest ones of before with them, up to the number of
        # environments.
        rows = [*self._newest, *self._ended][-max(self._environments, len(self._ended)) :]
        self._newest.extend(self._ended)
        self._ended = []
        returns = np.array([float(row["return"]) for row in rows])
        lengths = np.array([float(row["length"]) for row in rows])
        policy_loss = metrics.get("loss/policy", 0.0)
        value_loss = metrics["loss/value"]
        entropy = metrics["policy/entropy"]
        value_weight, entropy_weight = self._coefficients
        row = {
            "update": update,
            "episodes": self._episodes,
            "frames": frames,
            "FPS": (frames - self._frames) / max(seconds - self._seconds, 1e-9),
            "duration": int(seconds),
            **_statistics("return", returns),
            # A return above 0 is a success, since only reaching the goal is rewarded.
            "success_rate": float((returns > 0).mean()),
            # Scaled as in learning, where negative rewards count as 0.
            **_statistics("reshaped_return", np.maximum(returns, 0) * self._scale),
            # Zeros: reward shaping does not exist here.
            **_statistics("reshaped_return_bonus", np.zeros(len(rows))),
            **_statistics("num_frames", lengths),
            "entropy": entropy,
            _VALUE: metrics["value/mean"],
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "loss": policy_loss + value_weight * value_loss - entropy_weight * entropy,
            "grad_norm": metrics["optimizer/gradient_norm"],
        }
        self._seconds = seconds
        self._frames = frames
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _statistics(name: str, values: np.ndarray) -> dict[str, float]:
    return {f"{name}_{which}": float(getattr(values, which)()) for which in _STATISTICS}


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
