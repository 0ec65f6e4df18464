"""An agent's training in a run folder."""

from __future__ import annotations

import os
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import jax
from ml_collections import ConfigDict

from motif_jax.devices.hosts import Hosts
from motif_jax.rl import agent_checkpoints, reward_choice, settings
from motif_jax.rl.agent_checkpoints import Snapshot
from motif_jax.rl.agreement import Agreement
from motif_jax.rl.batcher import DeviceBatch
from motif_jax.rl.clock import Clock
from motif_jax.rl.guard import Guard
from motif_jax.rl.recordings import drop_recordings, make_recorder
from motif_jax.rl.records import Records
from motif_jax.rl.system import BatchStream, Listeners, System
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.interruption import Interruption, StoppedError, never
from motif_jax.support.profiling import Profiler


class AgentTraining:
    """A run in a folder: put together, resumed, trained.

    Args:
      config: a resolved config, checked.
      workdir: the run folder.

    Attributes:
      clock: how far the run is.
      system: what runs; None before `run`.
    """

    def __init__(self, config: ConfigDict, workdir: str | os.PathLike[str]) -> None:
        self._config, self._workdir = config.copy_and_resolve_references(), Path(workdir)
        self._hosts = Hosts()
        self.clock = Clock(self._config)
        self.system: System | None = None

    def run(self, stop: Interruption) -> bool:
        """Trains until all steps are done (True) or a stop is requested (False); saves in either case.

        Raises:
          ServiceFailedError: a part of the system failed.
          UserError: the learning diverged, now or when the run was started before.
        """
        config, workdir, clock = self._config, self._workdir, self.clock
        with ExitStack() as stack:
            checkpoints = stack.enter_context(
                agent_checkpoints.open_checkpoints(workdir, config.keep_checkpoints)
            )
            self._settle_reward(checkpoints)
            snapshot = self._newest(checkpoints)
            progress = {} if snapshot is None else snapshot.progress
            if snapshot is not None:
                clock.go_on(progress)
            Guard(config, None, progress).require(clock.steps)
            if clock.finished:
                self._say(f"nothing to do: {workdir} has {clock.steps:,} of {clock.total:,} steps")
                return True
            if self._hosts.is_first:
                drop_recordings(workdir, progress.get("env_steps"))
            recorder = make_recorder(config, workdir)
            listeners = Listeners()
            if recorder is not None:
                stack.enter_context(recorder)
                listeners = Listeners(batch=(recorder.take,))
            self.system = system = System(config, snapshot, listeners, workdir)
            stack.callback(system.close)
            records = stack.enter_context(
                Records(config, workdir, checkpoints, system, clock, recorder, progress)
            )
            profile = config.profile
            start = profile.start if self._hosts.is_first else None
            profiler = Profiler(workdir, start, profile.steps, profile.server_port)
            stack.callback(profiler.close)
            self._say_what_runs(system)
            # Several hosts stop together, after an update.
            stopped = (lambda: stop.requested) if self._hosts.count == 1 else never
            try:
                stream = stack.enter_context(BatchStream(system, stopped))
            except StoppedError:
                return False
            Loop(self._hosts, clock, system, stream, records, profiler).run(stop)
        return clock.finished

    def _settle_reward(self, checkpoints: Checkpoints) -> None:
        """Finds out which evaluation of the reward the run learns from, the same on all hosts."""
        self._hosts.on_first(lambda: reward_choice.settle(self._config, self._workdir, checkpoints))
        step = self._hosts.gather(reward_choice.settled(self._workdir))[0]
        if step is not None:
            self._config.reward.step = step

    def _newest(self, checkpoints: Checkpoints) -> Snapshot | None:
        latest = checkpoints.latest()
        where = f"--workdir={self._workdir} is not a folder that all hosts share (its newest checkpoint)"
        self._hosts.require_equal(latest, where)
        return None if latest is None else Snapshot(checkpoints, latest)

    def _say(self, line: str) -> None:
        if self._hosts.is_first:
            print(line, file=sys.stderr, flush=True)

    def _say_what_runs(self, system: System) -> None:
        """Prints the hosts and devices, on the first host."""
        nodes, config = self._hosts.gather(socket.gethostname()), self._config
        size = sum(leaf.size for leaf in jax.tree.leaves(system.learner.state.params))
        manner, *_ = (source.actors.prepare() for source in system.sources)
        devices = settings.learner_devices(config), settings.actor_devices(config)
        self._say(overview(config, size, *devices, nodes, manner))


class Loop:
    """Learns from batch after batch; all hosts do the same after the same update.

    Args:
      hosts: of the run.
      clock: of the run.
      system: what runs.
      stream: where batches come from.
      records: writes logs and checkpoints.
      profiler: called every update.
    """

    def __init__(
        self,
        hosts: Hosts,
        clock: Clock,
        system: System,
        stream: BatchStream,
        records: Records,
        profiler: Profiler,
    ) -> None:
        self._hosts, self._clock, self._system = hosts, clock, system
        self._stream, self._records, self._profiler = stream, records, profiler
        self._agreement = Agreement(system.parallel)

    def run(self, stop: Interruption) -> None:
        """Returns when all steps are done or the hosts have agreed to stop; the run is saved then.

        Raises:
          UserError: updates were not finite; the run is saved then, too.
        """
        clock, learner, alone = self._clock, self._system.learner, self._hosts.count == 1
        clock.start()
        while True:
            stopping = self._conclude() or (alone and stop.requested)
            if clock.finished or stopping or self._records.guard.exceeded:
                break
            batch = self._stream.get()
            if batch is None:
                continue
            self._profiler.step(learner.version)
            self._records.begin()
            learner.step(batch)
            self._agreement.say(self._saying(batch, stop))
            self._records.add(clock.steps + batch.num_steps, batch)
        self._records.end(self._stream)

    def _saying(self, batch: DeviceBatch, stop: Interruption) -> list[int]:
        """Steps of this host's part of the batch, and whether to stop, to save and to log, by the first host's clock."""
        first = self._hosts.is_first
        save, log = first and self._clock.save_is_due(), first and self._clock.log_is_due()
        return [batch.num_steps, int(stop.requested), int(save), int(log)]

    def _conclude(self) -> bool:
        """Waits for the running update and does what the hosts agreed on; returns whether they stop."""
        clock = self._clock
        self._system.learner.settle()
        # Before anything is launched or saved: neither may come behind an update that ends the run.
        self._records.look()
        agreed = self._agreement.result()
        if agreed is None:
            return False
        steps, stop, save, log = agreed
        clock.steps += steps
        self._records.counted()
        # The last row is written when no more episodes come.
        if log and not stop and not clock.finished:
            self._records.log(self._stream.waiting())
        if save or clock.save_step_is_passed():
            self._records.save(asynchronous=True)
        return stop > 0


def overview(
    config: ConfigDict,
    num_parameters: int,
    learning: Sequence[jax.Device],
    acting: Sequence[jax.Device],
    nodes: Sequence[str],
    manner: str = "",
) -> str:
    """The line of a `train_agent` config.

    Args:
      config: the stage's.
      num_parameters: of the network.
      learning, acting: devices of one host, the same on all.
      nodes: names of the hosts.
      manner: how the environments are run, see `Rollouts.prepare`.
    """
    workers, environments = config.actors.workers, config.actors.envs_per_worker
    actors = (
        f"{workers} actor{'s' * (workers != 1)} x {environments} environments of {config.environment.name}"
    )
    if manner:
        actors += f" ({manner})"
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
    """'gpu:0,1 (2 x NVIDIA H200)'; for CPUs it says that they are no GPU."""
    platform, kind = devices[0].platform, devices[0].device_kind
    kind = "no GPU" if platform == "cpu" else kind if len(devices) == 1 else f"{len(devices)} x {kind}"
    return f"{platform}:{','.join(str(device.id) for device in devices)} ({kind})"


def _reward(config: ConfigDict) -> str:
    """What the agent learns from: the rewards whose coefficient is not 0."""
    reward = config.reward
    name = f"intrinsic reward of {reward.dir or f'kind {reward.kind}'}"
    if reward.intrinsic_coefficient != 0:
        return name
    if reward.extrinsic_coefficient == 0:
        return "no reward: both coefficients are 0"
    return "the task's reward alone" + (f" (the {name} is only logged)" if reward.dir else "")
