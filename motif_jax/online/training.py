"""An agent's training in a run folder: resumed, logged, saved."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from motif_jax.devices.hosts import Agreement, Ballot, Hosts
from motif_jax.devices.meters import of_all_hosts, system_metrics
from motif_jax.online import agent_checkpoints, reward_choice, settings
from motif_jax.online.batcher import DeviceBatch
from motif_jax.online.episode_log import EpisodeLog
from motif_jax.online.learner import Averages
from motif_jax.online.recordings import drop_recordings, make_recorder
from motif_jax.online.system import BatchStream, System
from motif_jax.support.interruption import Interruption
from motif_jax.support.metrics import MetricsWriter
from motif_jax.support.profiling import Profiler
from motif_jax.support.progress import Progress

_SHOW_SECONDS = 0.5


class Training:
    """A run in a folder: resumes, trains, logs, saves.

    Args:
      config: the stage's config, checked.
      workdir: the run folder.
    """

    def __init__(self, config: ConfigDict, workdir: str | os.PathLike[str]) -> None:
        self._config = settings.resolved(config)
        self._workdir = Path(workdir)
        self._hosts = Hosts()
        self._unwritten: list[dict[str, Any]] = []

    def run(self, stop: Interruption) -> bool:
        """Trains until all steps are done (True) or a stop is requested (False); saves in either case.

        Raises:
          ServiceFailedError: a part of the system failed.
        """
        config = self._config
        total = config.train_for_env_steps
        with ExitStack() as stack:
            self._checkpoints = stack.enter_context(
                agent_checkpoints.open_checkpoints(self._workdir, config.keep_checkpoints)
            )
            self._settle_reward()
            system, progress = self._restore()
            stack.callback(system.close)
            self._system, self._steps = system, progress.get("env_steps", 0)
            self._seconds_before, self._started = progress.get("seconds", 0.0), time.monotonic()
            self._next_episode = progress.get("next_episode", [])
            resume = progress.get("env_steps")
            if self._steps >= total:
                return True
            self._agreement = Agreement(system.parallel)
            first = self._hosts.is_first
            self._writer = first and stack.enter_context(
                MetricsWriter(self._workdir, resume, settings.wandb_options(config))
            )
            self._episodes = stack.enter_context(
                EpisodeLog(
                    self._workdir if first else None,
                    config.stats_episodes,
                    system.has_lookup,
                    resume,
                    progress.get("episodes", []),
                    system.network.spec.episode_fields,
                )
            )
            if first:
                drop_recordings(self._workdir, resume)
            self._recorder = make_recorder(config, self._workdir)
            if self._recorder is not None:
                stack.enter_context(self._recorder)
                system.batcher.on_batch = self._recorder.take
            profile = config.profile
            start = profile.start if first else None
            self._profiler = Profiler(self._workdir, start, profile.steps, profile.server_port)
            stack.callback(self._profiler.close)
            self._averages = Averages()
            self._say_what_runs()
            self._progress = first and stack.enter_context(Progress(total, "steps", "train", self._steps))
            self._stream = stack.enter_context(BatchStream(system))
            self._loop(total, stop)
        return self._steps >= total

    def _settle_reward(self) -> None:
        """Finds out which evaluation of the reward the run learns from, the same on all hosts."""
        self._hosts.on_first(lambda: reward_choice.settle(self._config, self._workdir, self._checkpoints))
        step = self._hosts.gather(reward_choice.settled(self._workdir))[0]
        if step is not None:
            self._config.reward.step = step

    def _restore(self) -> tuple[System, dict[str, Any]]:
        latest = self._checkpoints.latest()
        where = f"--workdir={self._workdir} is not a folder that all hosts share (its newest checkpoint)"
        self._hosts.require_equal(latest, where)
        if latest is None:
            return System(self._config), {}
        network, optimizer = settings.make_network(self._config), settings.make_optimizer(self._config)
        state, progress = agent_checkpoints.restore(self._checkpoints, latest, network, optimizer)
        return System(self._config, state, progress["next_episode"], progress["draws"]), progress

    def _say_what_runs(self) -> None:
        """One line on the first host, which meets all others' names for it."""
        nodes, config = self._hosts.gather(socket.gethostname()), self._config
        if self._hosts.is_first:
            params = jax.tree.leaves(self._system.learner.state.params)
            learning, acting = settings.learner_devices(config), settings.actor_devices(config)
            line = overview(config, sum(leaf.size for leaf in params), learning, acting, nodes)
            print(line, file=sys.stderr, flush=True)

    def _loop(self, total: int, stop: Interruption) -> None:
        system, alone = self._system, self._hosts.count == 1
        self._logged_at = self._saved_at = self._shown_at = time.monotonic()
        self._logged_steps = self._saved_steps = self._steps
        while True:
            stopping = self._conclude(total) or (alone and stop.requested)
            if self._steps >= total or stopping:
                break
            batch = self._stream.get()
            if batch is None:
                continue
            self._profiler.step(system.learner.version)
            system.learner.step(batch)
            self._agreement.vote(self._ballot(batch, stop))
            self._after_step(batch)
        self._end_episodes()
        self._show(time.monotonic())
        if self._steps > self._logged_steps:
            self._log()
        self._save(asynchronous=False)

    def _ballot(self, batch: DeviceBatch, stop: Interruption) -> Ballot:
        """What this host says with the update that has just been started; the first host has the clock."""
        now, first = time.monotonic(), self._hosts.is_first
        save = first and now - self._saved_at >= self._config.save_every_seconds
        log = first and now - self._logged_at >= self._config.log_every_seconds
        return Ballot(batch.num_steps, int(stop.requested), int(save), int(log))

    def _conclude(self, total: int) -> bool:
        """Waits for the update that runs and does what the hosts agreed on with it; returns whether they stop."""
        self._system.learner.settle()
        agreed = self._agreement.result()
        if agreed is None:
            return False
        self._steps += agreed.steps
        # The last row is written when no more episodes come.
        if agreed.log and not agreed.stop and self._steps < total:
            self._log()
        every = self._config.save_every_steps
        if agreed.save or self._steps // every > self._saved_steps // every:
            self._save(asynchronous=True)
        return agreed.stop > 0

    def _after_step(self, batch: DeviceBatch) -> None:
        # Metrics of the update before: read now that the devices have their next one.
        self._averages.add(self._system.learner.metrics())
        step = self._steps + batch.num_steps
        self._keep(self._episodes.join(step, self._reports(step), batch.intrinsic_returns))
        now = time.monotonic()
        if now - self._shown_at >= _SHOW_SECONDS:
            self._show(now)

    def _end_episodes(self) -> None:
        """Takes in the episodes that ended behind the last batch that was learned from."""
        # Without a save that is still to come the checkpoint does not know of them: their places are played again.
        reports = self._reports(self._steps) if self._steps > self._saved_steps else []
        self._keep(self._episodes.join_rest(self._steps, reports, self._stream.rest()))

    def _reports(self, step: int) -> list[dict[str, Any]]:
        """What actors report of the episodes that ended since the last call."""
        reports = [report for source in self._system.sources for report in source.actors.episodes()]
        if self._recorder is not None:
            self._recorder.report(step, reports)
        return reports

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        """Takes in this host's complete episodes."""
        if self._hosts.count == 1:
            self._episodes.write(rows)
        else:
            self._unwritten += rows

    def _gather(self, system: dict[str, float] | None = None) -> list[dict[str, Any]]:
        """Takes in the episodes of all hosts; gives what else they tell each other, `system` with it."""
        actors = [source.actors for source in self._system.sources]
        everyone = self._hosts.gather(
            {
                "system": system,
                "episodes": self._unwritten,
                "next_episode": self._system.next_episode(),
                "draws": self._system.draws(),
                "restarts": sum(a.restarts for a in actors),
                "dropped_slots": sum(a.dropped_slots for a in actors),
            }
        )
        self._unwritten = []
        for host in everyone:
            self._episodes.write(host["episodes"])
        return everyone

    def _show(self, now: float) -> None:
        if not self._progress:
            return
        means = self._episodes.means()
        names = [name for name in ("return", "intrinsic_return") if f"episode/{name}" in means]
        self._progress.update(self._steps, **{name: means[f"episode/{name}"] for name in names})
        self._shown_at = now

    def _save(self, asynchronous: bool) -> None:
        system, everyone = self._system, self._gather()
        next_episode = [number for host in everyone for number in host["next_episode"]]
        # A run that goes on with fewer environments keeps the others' places.
        self._next_episode = next_episode + self._next_episode[len(next_episode) :]
        progress = {
            "env_steps": self._steps,
            "updates": system.learner.version,
            reward_choice.STEP: self._config.reward.step,
            "draws": max(host["draws"] for host in everyone),
            "next_episode": self._next_episode,
            "episodes": self._episodes.state(),
            "seconds": self._seconds(),
        }
        agent_checkpoints.save(
            self._checkpoints,
            self._steps,
            system.learner.state,
            progress,
            self._episodes.means() if self._episodes.settled() else {},
            asynchronous,
        )
        self._saved_at, self._saved_steps = time.monotonic(), self._steps

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started

    def _log(self) -> None:
        system = system_metrics(self._system.meters.read(), self._system.inference_threads)
        everyone = self._gather({**system, "queue/waiting_batches": float(self._stream.waiting())})
        together = of_all_hosts([host["system"] for host in everyone])
        # Those of the update that has just been waited for, which are read later where no row is written.
        self._averages.add(self._system.learner.metrics())
        values = {**self._averages.read(), **self._episodes.row(), **together}
        seconds = max(time.monotonic() - self._logged_at, 1e-9)
        values |= {
            "throughput/env_steps_per_second": (self._steps - self._logged_steps) / seconds,
            "actors/restarts": float(sum(host["restarts"] for host in everyone)),
            "actors/dropped_slots": float(sum(host["dropped_slots"] for host in everyone)),
            "time/seconds": self._seconds(),
            "time/updates": float(self._system.learner.version),
        }
        if self._writer:
            self._writer.write(self._steps, values)
        self._logged_at, self._logged_steps = time.monotonic(), self._steps


def overview(
    config: ConfigDict,
    num_parameters: int,
    learning: Sequence[jax.Device],
    acting: Sequence[jax.Device],
    nodes: Sequence[str],
) -> str:
    """The line of a `train_agent` config.

    Args:
      config: the stage's.
      num_parameters: of the network.
      learning, acting: devices of one host, the same on all.
      nodes: the name of every host's machine.
    """
    actors = f"{config.actors.workers} actors x {config.actors.envs_per_worker} environments of {config.environment.name}"
    if len(nodes) > 1:
        actors = f"{len(nodes)} hosts ({_machines(nodes)}), each with {actors}"
    return "; ".join(
        [actors, f"{_parameters(num_parameters)} learn on {_places(learning, acting)}", _reward(config)]
    )


def _machines(nodes: Sequence[str]) -> str:
    counts = Counter(nodes)
    return ", ".join(node if count == 1 else f"{count} x {node}" for node, count in counts.items())


def _parameters(number: int) -> str:
    return f"{number / 1e6:.1f} million parameters" if number >= 1e6 else f"{number:,} parameters"


def _places(learning: Sequence[jax.Device], acting: Sequence[jax.Device]) -> str:
    act = "act" if len(acting) > 1 else "acts"
    if list(learning) == list(acting):
        return f"{_devices(learning)}, which also {act}"
    return f"{_devices(learning)}; {_devices(acting)} {act}"


def _devices(devices: Sequence[jax.Device]) -> str:
    """'gpu:0,1 (2 x NVIDIA H200)'; of CPUs it is said that they are no GPU, for those who expect one."""
    platform, kind = devices[0].platform, devices[0].device_kind
    kind = "no GPU" if platform == "cpu" else kind if len(devices) == 1 else f"{len(devices)} x {kind}"
    return f"{platform}:{','.join(str(device.id) for device in devices)} ({kind})"


def _reward(config: ConfigDict) -> str:
    return f"intrinsic reward of {config.reward.dir}" if config.reward.dir else "the task's reward alone"
