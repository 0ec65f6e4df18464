"""Writes a training's folder while it runs: checkpoints, rows of metrics, lines of episodes,
recordings; and the interface of what a method adds to it (`TrainingHook`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

from motif_jax.core import entry_points
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices import memory
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.meters import of_all_hosts, system_metrics
from motif_jax.core.metrics import MetricsWriter
from motif_jax.core.progress import Progress
from motif_jax.core.run_folder import read_config
from motif_jax.envs import determinism
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl import (
    agent_checkpoints,
    agent_networks,
    choices,
    intrinsic,
    paid_texts,
    reward_choice,
    settings,
)
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.batcher import Batch
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.episode_log import EpisodeLog
from motif_jax.rl.episode_recorder import EpisodeRecorder
from motif_jax.rl.learner import Averages, Guard
from motif_jax.rl.model_flops import DeviceUse
from motif_jax.rl.paid_texts import PaidTextLog, as_table
from motif_jax.rl.system import System

_LAG = "lag/mean"
# The episode field of environments whose steps last several turns of a game.
_TURNS = "turns"


class TrainingHook:
    """What a method adds to a training: checks before the start, and further files in its folder.

    A key of the config turns it on (`choices.HOOKS`). The first host alone makes it.
    """

    # Whether `after_update` reads the episodes of all hosts, so that they exchange them after each
    # update.
    reads_updates: bool = False

    @classmethod
    def check(cls, config: AgentConfig, workdir: Path) -> None:
        """Raises UserError, before a training starts, for values that cannot work."""

    @classmethod
    def make(
        cls,
        config: AgentConfig,
        network: PolicyNetwork,
        workdir: Path,
        progress: Mapping[str, Any],
        clock: Clock,
    ) -> Self | None:
        """The addition to a run in `workdir` that continues from a checkpoint's `progress`; None
        where it has nothing to do.
        """
        return None

    def before_update(self, params: Any, update: int, step: int) -> None:
        """Called with the acting parameters before update `update` (from 0), at environment step
        `step`.
        """

    def add_episodes(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Called with the lines of episodes that ended."""

    def after_update(
        self, update: int, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> None:
        """Called after update `update`, when the clock has its steps; not where the update's
        numbers were not finite.
        """

    def close(self) -> None:
        """Called once at the end."""


def hooks_of(config: AgentConfig) -> list[type[TrainingHook]]:
    """The additions that the config turns on: their keys are neither None nor False."""
    turned_on = [key for key in choices.HOOKS if getattr(config, key) not in (None, False)]
    return [entry_points.load_packaged(choices.HOOKS[key]) for key in turned_on]


class RunWriter(ExitStack):
    """Writes the files of a run; with several hosts the first writes for all.

    Args:
      recorder: records games; None where none are recorded.
      progress: of the checkpoint that the run resumes from; {} for a new run.
    """

    def __init__(
        self,
        config: AgentConfig,
        workdir: Path,
        checkpoints: Checkpoints,
        system: System,
        clock: Clock,
        recorder: EpisodeRecorder | None,
        progress: dict[str, Any],
    ) -> None:
        super().__init__()
        self._config = config
        self._workdir = workdir
        self._checkpoints = checkpoints
        self._system = system
        self._clock = clock
        self._recorder = recorder
        self._hosts = Hosts()

        self._averages = Averages()
        self._learning = settings.learner_devices(config.devices)
        acting = settings.actor_devices(config.devices)
        self._device_use = DeviceUse(
            config, system.network, system.network_params(), self._learning, acting
        )
        # of the update that ended in this turn of the loop; empty where none did, or none that was
        # finite
        self._metrics: dict[str, float] = {}
        self._lag: float | None = None  # of the last update that was finite
        self._wait_share: float | None = None  # of the learner's time, in the last row
        self._reward_version = 0
        self._read_files = _digests(config, progress)
        self._reward_digest = intrinsic.digest(config.reward)
        self._next_episode: list[int] = progress.get("next_episode", [])
        # complete episodes of this host, not yet exchanged
        self._unwritten: list[dict[str, Any]] = []

        writing_folder = workdir if self._hosts.is_first else None
        self.guard = Guard(config.nonfinite, writing_folder, progress)
        fields = system.network.spec.episode_fields
        seen = determinism.look(config.environment.name, settings.environment_options(config))
        log = EpisodeLog(
            writing_folder,
            config.stats_episodes,
            system.has_lookup,
            progress,
            fields,
            seen.success_falls,
        )
        self._episodes = self.enter_context(log)
        self._writer: MetricsWriter | None = None
        self._paid_texts: PaidTextLog | None = None
        self._progress: Progress | None = None
        hooks = hooks_of(config)
        self._reads_updates = any(hook.reads_updates for hook in hooks)
        self._hooks: list[TrainingHook] = []
        if self._hosts.is_first:
            self._open_outputs(hooks, progress)

    def _open_outputs(self, hooks: Sequence[type[TrainingHook]], progress: dict[str, Any]) -> None:
        """Opens what only the first host writes: rows of metrics, paid texts, the line of progress,
        and the hooks' files.
        """
        config = self._config
        workdir = self._workdir
        clock = self._clock
        system = self._system
        wandb = None
        if config.wandb.enabled:
            wandb = {
                "project": config.wandb.project,
                "config": read_config(workdir),
            }
        self._writer = self.enter_context(MetricsWriter(workdir, progress.get("env_steps"), wandb))
        if system.has_lookup:
            self._paid_texts = self.enter_context(PaidTextLog(workdir, progress.get("env_steps")))
        self._progress = self.enter_context(Progress(clock.total, "steps", "train", clock.steps))
        for kind in hooks:
            hook = kind.make(config, system.network, workdir, progress, clock)
            if hook is not None:
                self._hooks.append(self.enter_context(closing(hook)))

    def read_update(self) -> None:
        """Reads the metrics of the update that has just ended."""
        self._metrics = self._system.learner.metrics()
        self._averages.add(self._metrics)
        self._lag = self._metrics.get(_LAG, self._lag)
        self.guard.check(self._system.learner)

    def counted(self) -> None:
        """Tells the hooks that an update has ended; called once the clock has all hosts' steps of
        the update.
        """
        if self._reads_updates and self._hosts.count > 1:
            self.gather()  # a row needs the episodes of all hosts
        if not self._metrics:
            return
        update = self._system.learner.version - 1
        for hook in self._hooks:
            hook.after_update(update, self._clock.steps, self._clock.seconds(), self._metrics)

    def begin(self) -> None:
        """Tells the hooks that an update is about to start."""
        for hook in self._hooks:
            # Every source acts with copies of the same parameters.
            params = self._system.sources[0].inference.params()
            hook.before_update(params, self._system.learner.version, self._clock.steps)

    def add(self, step: int, batch: Batch) -> None:
        """Takes a batch that is learned from up to environment step `step`, and the episodes that
        ended meanwhile.
        """
        self._reward_version = batch.reward_version
        self._device_use.add(batch)
        self._keep(self._episodes.join(step, self._reports(step), batch.intrinsic_returns))
        if self._clock.show_is_due():
            self.show()

    def end(self, stream: BatchStream) -> None:
        """Takes the episodes that ended after the last learned batch; writes the last row and
        checkpoint.
        """
        clock = self._clock
        # Without another checkpoint a resumed run plays these episodes again.
        reports = self._reports(clock.steps) if clock.steps > clock.saved_steps else []
        self._keep(self._episodes.join_rest(clock.steps, reports, stream.rest()))
        self.show()
        if clock.steps > clock.logged_steps:
            self.log(stream.waiting())
        self.save(asynchronous=False)
        self._warn_of_standstill()
        self.guard.require(clock.steps)

    def show(self) -> None:
        """Updates the line of progress on the terminal."""
        if not self._progress:
            return
        means = self._episodes.means()
        facts: dict[str, float | str] = {}
        for name in ("return", "intrinsic_return"):
            if f"episode/{name}" in means:
                facts[name] = means[f"episode/{name}"]
        if self._lag is not None:
            facts["lag"] = self._lag
        if self._wait_share is not None:
            # The rest of the time the games wait, for actions or for room in the queue.
            facts["learner_waits"] = f"{100 * self._wait_share:.0f} %"
        memory_in_use = memory.in_use(self._learning[0])
        if memory_in_use is not None:
            facts["device_memory"] = memory_in_use
        self._progress.update(self._clock.steps, **facts)
        self._clock.shown()

    def log(self, waiting: int) -> None:
        """Writes a row of metrics, with all hosts; `waiting` batches wait for the learner."""
        system = self._system
        reading = system.meters.read()
        of_this_host = {
            **system_metrics(reading, system.inference_threads),
            **self._device_use.metrics(reading),
            "queue/waiting_batches": float(waiting),
        }
        # All hosts take part and read their meters, though the first one writes.
        everyone = self.gather(of_this_host)
        steps_per_second = self._clock.logged()
        reward_metrics = {} if system.reward is None else system.reward.metrics()
        if system.has_lookup:
            reward_metrics = {"reward/version": float(self._reward_version), **reward_metrics}
        values = {
            **self._averages.read(),
            **self._episodes.row(),
            **reward_metrics,
            **of_all_hosts([host["system"] for host in everyone]),
            "actors/restarts": float(sum(host["restarts"] for host in everyone)),
            "actors/dropped_slots": float(sum(host["dropped_slots"] for host in everyone)),
            "time/seconds": self._clock.seconds(),
            "time/updates": float(system.learner.version),
            "throughput/env_steps_per_second": steps_per_second,
            **turns_per_second(
                system.network.spec.episode_fields, self._episodes, steps_per_second
            ),
        }
        self._wait_share = values["learner/wait_share"]
        if self._writer:
            self._writer.write(self._clock.steps, values)
        self._write_paid_texts()

    def _write_paid_texts(self) -> None:
        """Writes what texts were paid since the last row, of this host's games."""
        sums = self._system.batcher.paid_texts
        if sums is None:
            return
        # On each host, so that the sums do not grow.
        row = sums.take(self._clock.steps)
        if self._writer is None or self._paid_texts is None:
            return
        self._paid_texts.write(row)
        if row.texts:
            self._writer.write_table(self._clock.steps, "reward/paid_most", as_table(row))

    def _warn_of_standstill(self) -> None:
        """Says at the end of a training where its reward pays an agent for staying with one
        text.
        """
        reward = self._config.reward
        pays_each_time = paid_texts.pays_each_time(
            reward.intrinsic_coefficient, reward.count_exponent
        )
        if self._progress is None or self._paid_texts is None or not pays_each_time:
            return
        warning = paid_texts.standstill(list(paid_texts.read(self._workdir)))
        if warning:
            self._progress.log(warning)

    def save(self, asynchronous: bool) -> None:
        """Saves a checkpoint, with all hosts."""
        clock = self._clock
        everyone = self.gather()
        next_episode = [number for host in everyone for number in host["next_episode"]]
        # A run that resumes with fewer environments remembers the episodes of the others.
        self._next_episode = next_episode + self._next_episode[len(next_episode) :]
        progress = {
            "env_steps": clock.steps,
            "updates": self._system.learner.version,
            reward_choice.STEP: self._config.reward.step,
            reward_choice.DIGEST: self._reward_digest,
            # As many as the source with most: a resumed run uses no number twice.
            "draws": max(host["draws"] for host in everyone),
            "next_episode": self._next_episode,
            "episodes": self._episodes.state(),
            "seconds": clock.seconds(),
            **self._read_files,
            **self.guard.progress(),
        }
        # Without a mean a checkpoint cannot be the best: few episodes may be lucky ones.
        metrics = self._episodes.means() if self._episodes.has_enough_episodes() else {}
        agent_checkpoints.save(
            self._checkpoints, clock.steps, self._system.items(), progress, metrics, asynchronous
        )
        clock.saved()

    def gather(self, system: dict[str, float] | None = None) -> list[dict[str, Any]]:
        """Exchanges the hosts' numbers and episodes; every host calls it at the same time.

        Args:
          system: this host's metrics of its own work.
        """
        sources = self._system.sources
        of_this_host = {
            "system": system,
            "episodes": self._unwritten,
            "next_episode": self._system.next_episode(),
            "draws": max(source.inference.counter for source in sources),
            "restarts": sum(source.actors.restarts for source in sources),
            "dropped_slots": sum(source.actors.dropped_slots for source in sources),
        }
        everyone = self._hosts.gather(of_this_host)
        self._unwritten = []
        for host in everyone:
            self._write(host["episodes"])
        return everyone

    def _reports(self, step: int) -> list[dict[str, Any]]:
        reports = [report for source in self._system.sources for report in source.actors.episodes()]
        if self._recorder is not None:
            self._recorder.report(step, reports)
        return reports

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        if self._hosts.count == 1:
            self._write(rows)
        else:
            # The first host writes them after the next `gather`.
            self._unwritten += rows

    def _write(self, rows: list[dict[str, Any]]) -> None:
        had_success = not self._episodes.success_falls
        self._episodes.write(rows)
        if had_success and self._episodes.success_falls and self._progress:
            self._progress.log(determinism.success_remark(self._config.environment.name))
        for hook in self._hooks:
            hook.add_episodes(rows)


def _digests(config: AgentConfig, progress: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Digests of the files that a training reads besides checkpoints, by the key of the progress
    that holds them.

    Args:
      progress: of the checkpoint that the run resumes from; {} for a new run.
    """
    network_kind = agent_networks.class_of(config)
    # A training that resumes does not read again what it started from.
    if progress:
        start_digests = progress.get(agent_checkpoints.START_DIGESTS, {})
    else:
        start_digests = network_kind.start_digests(config)
    return {
        agent_checkpoints.FILE_DIGESTS: network_kind.file_digests(config),
        agent_checkpoints.START_DIGESTS: start_digests,
    }


def turns_per_second(
    episode_fields: Collection[str], episodes: EpisodeLog, steps_per_second: float
) -> dict[str, float]:
    """The games' own speed where a task counts turns: a step may last none, or many once an agent
    rests or travels.

    Args:
      episode_fields: names of the environment's numbers of an episode.
      episodes: the log of the episodes that ended last; without any the speed is NaN.
    """
    if _TURNS not in episode_fields:
        return {}
    row = episodes.row()
    turns_per_step = row[f"episode/{_TURNS}"] / row["episode/length"]
    return {"throughput/turns_per_second": steps_per_second * turns_per_step}
