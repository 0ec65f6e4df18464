"""Trains an agent in a run folder, on one host or on several: the stage, and the loop over batches
(`AgentTraining._learn`).
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import jax
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.interruption import EXIT_CODE, Interruption, Patience, StoppedError, never
from motif_jax.core.profiling import Profiler
from motif_jax.envs import determinism
from motif_jax.rl import (
    agent_checkpoints,
    agent_networks,
    reward_choice,
    settings,
    start_messages,
)
from motif_jax.rl.agent_checkpoints import Snapshot
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.clock import Clock
from motif_jax.rl.config import AgentConfig, agent_config
from motif_jax.rl.episode_recorder import EpisodeRecorder, drop_recordings
from motif_jax.rl.learner import Guard, HostSums
from motif_jax.rl.run_writer import RunWriter, hooks_of
from motif_jax.rl.start_messages import StartMessages
from motif_jax.rl.system import System

# Keys that must stay the same when a run is continued; all others may change.
IDENTITY = (
    "stage",
    "seed",
    "environment",
    "network",
    "lora",
    "algorithm",
    "optimizer",
    "reward",
    "compat",
    "batch_size",
    "rollout",
    # Of the annotator of configs/oni.py the questions, not the server that answers.
    "annotator.goal",
    "annotator.prompt",
    "annotator.answer",
)


def check(config_tree: ConfigDict, workdir: Path) -> None:
    run_folder.check_identity(workdir, config_tree, IDENTITY)
    # A run that continues is checked with the reward that it has learned from.
    training = reward_choice.with_stored_step(agent_config(config_tree), workdir)
    settings.configure_jax(training)
    agent_networks.class_of(training).check(training)
    settings.check(training)
    for hook in hooks_of(training):
        hook.check(training, workdir)


def run(config_tree: ConfigDict, workdir: Path) -> int | None:
    resolved = settings.resolved(agent_config(config_tree))
    hosts = Hosts()
    if hosts.count > 1:
        hosts.require_alike(config_tree.to_dict())
        # `check` could not: the number of devices is known only once the hosts are connected.
        settings.check_devices(resolved)

    def prepare() -> None:
        run_folder.prepare(workdir, config_tree, IDENTITY)

    environment = resolved.environment.name
    remarks = determinism.remarks(environment, settings.environment_options(resolved))
    on_algorithm = start_messages.remark_on_algorithm(config_tree.algorithm)
    if on_algorithm is not None:
        remarks.append(on_algorithm)
    if hosts.is_first:
        for remark in remarks:
            print(remark, file=sys.stderr, flush=True)

    with Interruption() as stop, hosts.locked(workdir):
        hosts.on_first(prepare)
        hosts.require_shared(workdir)
        training = AgentTraining(resolved, workdir)
        finished = training.run(stop)
    if training.was_left_unsaved:
        # Python's own end would wait for the devices.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_CODE)
    return None if finished else EXIT_CODE


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
        is_first = self._hosts.is_first
        with ExitStack() as stack:
            enter = stack.enter_context
            keep = self.config.keep_checkpoints
            every = self.config.save_every_steps
            checkpoints = enter(agent_checkpoints.open_checkpoints(workdir, keep, every))

            # REWARD: the evaluation of its training that this run uses to its end.
            config = self.config
            step = self._hosts.on_first(lambda: reward_choice.step_of(config, checkpoints))
            if step is not None:
                reward = dataclasses.replace(config.reward, step=step)
                config = dataclasses.replace(config, reward=reward)
                self.config = config

            # RESUME from the newest checkpoint, unless the run has finished or must not be
            # continued.
            latest = checkpoints.latest()
            where = f"--workdir={workdir} must be one folder that all hosts share: its newest checkpoint"
            self._hosts.require_equal(latest, where)
            snapshot = None if latest is None else Snapshot(checkpoints, latest)
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
            if is_first:
                # Games after the checkpoint are played, and recorded, again.
                drop_recordings(workdir, progress.get("env_steps"))

            # MAKE EVERYTHING. What is entered last is closed first.
            recorder = None
            if config.record_every:
                options = settings.environment_options(config)
                name = config.environment.name
                recorder = enter(EpisodeRecorder(workdir, name, options, config.record_every))
            messages = StartMessages(config, self._print)
            messages.read_model()
            system = System(config, snapshot, recorder.take if recorder else None, workdir)
            self.system = system
            # The stream closes it, too; this serves an error before the stream is entered.
            stack.callback(system.close)
            writer = enter(
                RunWriter(config, workdir, checkpoints, system, clock, recorder, progress)
            )
            profile = dataclasses.asdict(config.profile) if is_first else {}
            profiler = Profiler(workdir, **profile)
            stack.callback(profiler.close)
            # All hosts take part in the overview, though only the first one prints.
            nodes = self._hosts.gather(socket.gethostname())
            num_parameters = sum(leaf.size for leaf in jax.tree.leaves(system.learner.state.params))
            remark = system.network.spec.remark
            self._print(start_messages.overview(config, num_parameters, nodes, remark))
            remark_on_lag = start_messages.remark_on_lag(config)
            if remark_on_lag is not None:
                self._print(remark_on_lag)

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

            # TRAIN
            try:
                self._learn(stop, system, stream, writer, profiler, messages)
            except StoppedError:
                # The next update would take minutes.
                self.was_left_unsaved = True
                # A checkpoint that is being written is the one that the next start continues from.
                checkpoints.wait()
                saved = checkpoints.latest()
                start = "its beginning" if saved is None else f"its checkpoint of {saved:,} steps"
                self._print(
                    f"stopped before the next update, unsaved: the run continues from {start}"
                )
        return clock.finished

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
