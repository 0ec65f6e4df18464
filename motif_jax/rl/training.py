"""An agent's training in a run folder."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.interruption import Interruption, Patience, StoppedError, never
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import PLAIN_INTERVAL_SECONDS
from motif_jax.rl import (
    agent_checkpoints,
    agent_networks,
    choices,
    reward_choice,
    settings,
    training_devices,
)
from motif_jax.rl.agent_checkpoints import Snapshot
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig
from motif_jax.rl.episode_recorder import EpisodeRecorder, drop_recordings
from motif_jax.rl.guard import Guard
from motif_jax.rl.run_writer import RunWriter
from motif_jax.rl.system import System


class HostSums:
    """Sums numbers of the hosts on the learner's devices, right after an update; only `result`
    blocks.

    The sum is launched before the new policy acts: a split model has reductions in acting, too, and
    two threads' reductions may reach the devices in different orders.

    Attributes:
      is_one_host: whether this host has all devices, so that its numbers are the sums.
    """

    def __init__(self, parallel: DataParallel) -> None:
        self._parallel = parallel
        self.is_one_host = parallel.global_device_count == parallel.device_count
        # `wrap` hands a program a replicated state first, and a sum has none.
        self._sum = parallel.wrap(lambda _, numbers: jax.lax.psum(jnp.sum(numbers, axis=0), AXIS))
        self._empty_state = parallel.replicate(np.zeros((), np.int32))
        self._result: np.ndarray | jax.Array | None = None

    def launch(self, numbers: Sequence[int]) -> None:
        """Starts the sum with this host's numbers; every host calls it after starting the same
        update.
        """
        if self.is_one_host:
            self._result = np.array(numbers)
            return
        # The first device has the host's numbers, the others zeros.
        rows = np.zeros((self._parallel.device_count, len(numbers)), np.int32)
        rows[0] = numbers
        self._result = self._sum(self._empty_state, self._parallel.put_batch(rows, 0))

    def result(self) -> list[int] | None:
        """The newest sums, None where they were returned before; waits for the update before
        them.
        """
        result = self._result
        self._result = None
        return None if result is None else np.asarray(result).tolist()


class AgentTraining:
    """A training in a run folder.

    Attributes:
      system: None before `run`.
      was_left_unsaved: whether `run` left a rollout or an update that takes minutes; the devices
          may still compute.
    """

    def __init__(self, config: AgentConfig, workdir: str | os.PathLike[str]) -> None:
        self.config = config
        self._workdir = Path(workdir)
        self._hosts = Hosts()
        self.clock = Clock(
            total=config.train_for_env_steps,
            save_every_steps=config.save_every_steps,
            save_every_seconds=config.save_every_seconds,
            log_every_seconds=config.log_every_seconds,
        )
        self.system: System | None = None
        self.was_left_unsaved = False

    def run(self, stop: Interruption) -> bool:
        """Trains until all steps are done (True) or a stop is requested (False); saves in either
        case, unless a stop comes long before the next update of a slow network.
        """
        workdir = self._workdir
        clock = self.clock
        with ExitStack() as stack:
            enter = stack.enter_context
            keep = self.config.keep_checkpoints
            every = self.config.save_every_steps
            checkpoints = enter(agent_checkpoints.open_checkpoints(workdir, keep, every))
            self._pin_reward(checkpoints)
            config = self.config

            # Continue from the newest checkpoint, unless the run has finished or must not be
            # continued.
            snapshot = self._newest_snapshot(checkpoints)
            progress = {} if snapshot is None else snapshot.progress
            if snapshot is not None:
                clock.resume(progress)
            Guard(config.nonfinite, None, progress).require(clock.steps)
            if clock.finished:
                self._print(
                    f"nothing to do: {workdir} has {clock.steps:,} of {clock.total:,} steps"
                )
                return True
            if snapshot is not None:
                self._print(f"goes on at step {clock.steps:,} of {clock.total:,}")
            if self._hosts.is_first:
                # Games after the checkpoint are played, and recorded, again.
                drop_recordings(workdir, progress.get("env_steps"))

            # Make everything. What is entered last is closed first.
            recorder = self._make_recorder()
            if recorder is not None:
                enter(recorder)
            messages = StartMessages(config, self._print)
            messages.read_model()
            system = System(config, snapshot, recorder.take if recorder else None, workdir)
            self.system = system
            # The stream closes it, too; this serves an error before the stream is entered.
            stack.callback(system.close)
            writer = enter(
                RunWriter(config, workdir, checkpoints, system, clock, recorder, progress)
            )
            profile = dataclasses.asdict(config.profile) if self._hosts.is_first else {}
            profiler = Profiler(workdir, **profile)
            stack.callback(profiler.close)
            self._print_overview(system)

            # Several hosts stop together, after an update.
            stopped = (lambda: stop.requested) if self._hosts.count == 1 else never
            # A stop waits for an update, unless it takes minutes: a scheduler kills the job before.
            patience = Patience(stopped) if agent_networks.class_of(config).is_slow else None
            system.learner.patience = patience
            try:
                messages.compile()
                stream = enter(BatchStream(system, stopped, messages.play, patience))
            except StoppedError:
                return False
            messages.play(0)  # the programs are compiled by now
            try:
                self._learn(stop, system, stream, writer, profiler, messages)
            except StoppedError:
                self._leave_unsaved(checkpoints)
        return clock.finished

    def _pin_reward(self, checkpoints: Checkpoints) -> None:
        """Puts the evaluation of the reward's training that this run uses to its end into the
        config.
        """
        config = self.config
        step = self._hosts.on_first(lambda: reward_choice.step_of(config, checkpoints))
        if step is not None:
            self.config = dataclasses.replace(
                config, reward=dataclasses.replace(config.reward, step=step)
            )

    def _newest_snapshot(self, checkpoints: Checkpoints) -> Snapshot | None:
        """The newest checkpoint, None for a new run; UserError where the hosts see different
        ones.
        """
        latest = checkpoints.latest()
        where = f"--workdir={self._workdir} must be one folder that all hosts share: its newest checkpoint"
        self._hosts.require_equal(latest, where)
        return None if latest is None else Snapshot(checkpoints, latest)

    def _make_recorder(self) -> EpisodeRecorder | None:
        """The recorder of games, None where the config records none."""
        config = self.config
        if not config.record_every:
            return None
        options = settings.environment_options(config)
        return EpisodeRecorder(self._workdir, config.environment.name, options, config.record_every)

    def _leave_unsaved(self, checkpoints: Checkpoints) -> None:
        """Ends a run whose next update would take minutes."""
        self.was_left_unsaved = True
        # A checkpoint that is being written is the one that the next start continues from.
        checkpoints.wait()
        self._print(
            f"stopped before the next update, unsaved: the run continues from {self._describe(checkpoints.latest())}"
        )

    @staticmethod
    def _describe(checkpoint: int | None) -> str:
        return "its beginning" if checkpoint is None else f"its checkpoint of {checkpoint:,} steps"

    def _learn(
        self,
        stop: Interruption,
        system: System,
        stream: BatchStream,
        writer: RunWriter,
        profiler: Profiler,
        messages: StartMessages,
    ) -> None:
        """The loop over batches."""
        clock = self.clock
        is_first = self._hosts.is_first
        is_one_host = self._hosts.count == 1
        sums = HostSums(system.parallel)
        # The intervals of saving and logging begin now, when all is made and compiled.
        clock.start()
        num_updates = 0
        while True:
            # All hosts do the same after the same update.
            is_stopping = self._conclude(system, stream, writer, sums)
            # The first update's program is compiled by now, for which all cores were used.
            if num_updates == 1:
                system.keep_off_the_actors()
            # Several hosts stop by the sum: one that left by itself would leave the others waiting.
            is_stopping = is_stopping or (is_one_host and stop.requested)
            if clock.finished or is_stopping or writer.guard.exceeded:
                break
            batch = stream.get()
            # None was ready for a moment: ended updates and stops are looked for meanwhile.
            if batch is None:
                continue
            messages.learn()
            profiler.step(system.learner.version)
            writer.begin()
            system.learner.step(batch)
            num_updates += 1
            # The first host's clock decides for all.
            save = clock.save_is_due() and is_first
            log = clock.log_is_due() and is_first
            sums.launch([batch.num_steps, int(stop.requested), int(save), int(log)])
            # The host's work on the batch, while the devices update.
            writer.add(clock.steps + batch.num_steps, batch)
        writer.end(stream)

    def _conclude(
        self, system: System, stream: BatchStream, writer: RunWriter, sums: HostSums
    ) -> bool:
        """Waits for the running update, then counts, logs and saves; returns whether a host was
        asked to stop.
        """
        clock = self.clock
        system.learner.finish_update()
        # First of all: nothing may be launched or saved after an update that ends the run.
        writer.read_update()
        result = sums.result()
        if result is None:
            return False
        steps, stop, save, log = result
        clock.steps += steps
        writer.counted()
        # The last row is written when no more episodes come.
        if log and not stop and not clock.finished:
            writer.log(stream.waiting())
        # Seconds are those of the first host's clock; steps are the same on all hosts.
        if save or clock.save_step_is_passed():
            writer.save(asynchronous=True)
        return stop > 0

    def _print(self, line: str) -> None:
        if self._hosts.is_first:
            print(line, file=sys.stderr, flush=True)

    def _print_overview(self, system: System) -> None:
        config = self.config
        # All hosts take part, though only the first one prints.
        nodes = self._hosts.gather(socket.gethostname())
        num_parameters = sum(leaf.size for leaf in jax.tree.leaves(system.learner.state.params))
        learning = training_devices.learner_devices(config.devices)
        acting = training_devices.actor_devices(config.devices)
        remark = system.network.spec.remark
        self._print(overview(config, num_parameters, learning, acting, nodes, remark))
        remark_on_lag = settings.remark_on_lag(config)
        if remark_on_lag is not None:
            self._print(remark_on_lag)


class StartMessages:
    """Prints what a language agent's run is doing before its first update, which may take minutes;
    other runs print nothing.
    """

    def __init__(self, config: AgentConfig, print_line: Callable[[str], None]) -> None:
        self.config = config
        self._print_line = print_line
        self._announces_compilation = agent_networks.class_of(config).is_slow
        self._printed_at = 0.0

    def _print(self, line: str) -> None:
        if self._announces_compilation:
            self._printed_at = time.monotonic()
            self._print_line(line)

    def read_model(self) -> None:
        if self._announces_compilation:
            self._print(f"reading the language model {self.config.network.model}")
            remark = agent_networks.class_of(self.config).remark(self.config)
            if remark:
                self._print(remark)

    def compile(self) -> None:
        self._print("compiling the policy's programs, while the actors start")

    def play(self, played: int) -> None:
        """Called whenever steps were played; prints now and then."""
        if played == 0 or time.monotonic() - self._printed_at >= PLAIN_INTERVAL_SECONDS:
            self._print(
                f"playing: {played:,} of {self.config.batch_size:,} steps before the first update"
            )

    def learn(self) -> None:
        """Called before every update; prints before the first."""
        self._print("the first update; its program is compiled before")
        self._announces_compilation = False


def overview(
    config: AgentConfig,
    num_parameters: int,
    learning: Sequence[jax.Device],
    acting: Sequence[jax.Device],
    nodes: Sequence[str],
    remark: str = "",
) -> str:
    """The line that sums a run up at its start.

    Args:
      learning, acting: devices of one host; those of other hosts are alike.
      nodes: the hosts' names.
      remark: `EnvironmentSpec.remark`.
    """
    workers = config.actors.workers
    plural = "" if workers == 1 else "s"
    environments = f"{config.actors.envs_per_worker} environments of {config.environment.name}"
    actors = f"{workers} actor{plural} x {environments}"
    if remark:
        actors += f" ({remark})"
    if len(nodes) > 1:
        counts = Counter(nodes).items()
        machines = ", ".join(node if count == 1 else f"{count} x {node}" for node, count in counts)
        actors = f"{len(nodes)} hosts ({machines}), each with {actors}"

    size = f"{num_parameters / 1e6:.1f} million" if num_parameters >= 1e6 else f"{num_parameters:,}"
    act = "act" if len(acting) > 1 else "acts"
    if list(learning) == list(acting):
        devices = f"{_devices(learning)}, which also {act}"
    else:
        devices = f"{_devices(learning)}; {_devices(acting)} {act}"
    return "; ".join([actors, f"{size} parameters learn on {devices}", _reward(config)])


def _devices(devices: Sequence[jax.Device]) -> str:
    """'gpu:0,1 (2 x NVIDIA H200)', or 'cpu:0 (no GPU)'."""
    platform = devices[0].platform
    numbers = ",".join(str(device.id) for device in devices)
    if platform == "cpu":
        return f"{platform}:{numbers} (no GPU)"
    kind = devices[0].device_kind
    if len(devices) > 1:
        kind = f"{len(devices)} x {kind}"
    return f"{platform}:{numbers} ({kind})"


def _reward(config: AgentConfig) -> str:
    reward = config.reward
    source = reward.dir or f"kind {reward.kind}"
    if reward.intrinsic_coefficient != 0:
        return f"intrinsic reward of {source}"
    paid = "the task's reward alone"
    if reward.extrinsic_coefficient == 0:
        paid = "no reward: both coefficients are 0"
    # Kind motif has no reward without a run in `dir`.
    if reward.kind == "none" or (reward.kind == choices.MOTIF and not reward.dir):
        return paid
    logged = f"the intrinsic reward of {source} is only logged"
    if reward.kind in choices.LEARNED_REWARDS:
        logged += ", and its annotator is asked all the same: config.reward.kind=none asks nothing"
    return f"{paid} ({logged})"
