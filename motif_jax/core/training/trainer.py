"""Trains a `Task` on the devices in epochs, with evaluations, early stop and exact resume."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motif_jax.core.devices import compiled_programs
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import Interruption
from motif_jax.core.metrics import MetricsWriter
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import Progress
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.run_files import RunFiles
from motif_jax.core.training.task import Task, TrainingPosition, shapes_of
from motif_jax.core.training.train_steps import Carry, make_train_steps
from motif_jax.core.training.training_loop import TrainingLoop


@dataclasses.dataclass(frozen=True)
class TrainerSettings:
    """Settings of the loop of a training.

    Attributes:
      patience: number of evaluations without improvement after which the training stops; 0: never.
      keep: number of newest evaluations to keep besides the best one; None: all.
      save_every_seconds: time between two saves inside an epoch.
      log_every_seconds: time between two rows of `Task.logged`; None: no rows.
      most_skips: budget of steps that are not finite.
      profile: arguments of `profiling.Profiler`.
      wandb: arguments of `wandb.init`; None: no W&B.
      config: the config of the run, which each evaluation's checkpoint holds.
    """

    patience: int = 0
    keep: int | None = None
    save_every_seconds: float = 300.0
    log_every_seconds: float | None = None
    most_skips: int = 0
    profile: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wandb: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, config: DatasetConfig, plain_config: Mapping[str, Any]) -> TrainerSettings:
        """The settings in `config`; `plain_config` is the config as its file and flags set it."""
        wandb = None
        if config.wandb.enabled:
            wandb = {"project": config.wandb.project}
        return cls(
            patience=config.early_stopping.patience,
            keep=config.keep_checkpoints,
            save_every_seconds=config.save_every_seconds,
            log_every_seconds=config.log_every_seconds,
            most_skips=config.nonfinite.budget,
            profile=dataclasses.asdict(config.profile),
            wandb=wandb,
            config=plain_config,
        )


class OfflineTrainer:
    """The programs of one training; `run` trains all epochs.

    A program runs a chunk of `task.chunk_steps` steps (on CPU one step), and the host reads the
    metrics of a chunk while the next one runs.
    """

    def __init__(
        self, task: Task, parallel: DataParallel, settings: TrainerSettings | None = None
    ) -> None:
        self.task = task
        self.parallel = parallel
        self.settings = settings or TrainerSettings()
        # On CPU XLA computes convolutions inside a loop about ten times slower: there every step is
        # a call of its own.
        self.steps_per_call = 1 if parallel.platform == "cpu" else None
        self.train = parallel.wrap(make_train_steps(task.guarded_step), donate_state=True)

    def place(self, state: Any) -> Carry:
        """Puts a host state and the task's shared arrays on every device."""
        return self.parallel.replicate(self._carry(state, 0))

    def _carry(self, state: Any, skipped: int) -> Carry:
        skips_left = np.int32(max(0, self.settings.most_skips - skipped))
        return Carry(state, skips_left, self.task.shared())

    def compile_ahead(self, carry: Carry) -> None:
        """Compiles the programs of batches of several shapes together, where the shapes are known;
        steps take them from memory.
        """
        first_steps = self.task.first_chunks()
        lower = getattr(self.train, "lower", None)
        # Split models and several CPU devices run through a Python function, which cannot be
        # lowered.
        if len(first_steps) < 2 or lower is None:
            return
        lowered = []
        for first in first_steps:
            batches = self.task.batches(first, self.task.chunk_steps)
            batches = jax.tree.map(lambda leaf: leaf[: self.steps_per_call], batches)
            lowered.append(
                lower(carry, self.parallel.put_whole(batches, self.task.batch_axes(batches)))
            )
        compiled_programs.compile_together(lowered)

    def train_chunk(
        self,
        carry: Carry,
        batches: Any,
        should_continue: Callable[[list[dict[str, jax.Array]]], bool] = lambda started: True,
    ) -> tuple[Carry, list[dict[str, jax.Array]]]:
        """Starts the steps of batches [steps, ...]; returns (new carry, metrics [steps] of each
        call) without waiting for them.

        `should_continue` gets the metrics of the calls so far, and says whether to start the next
        call.
        """
        steps = len(jax.tree.leaves(batches)[0])
        steps_per_call = self.steps_per_call or steps
        call_metrics: list[dict[str, jax.Array]] = []
        for start in range(0, steps, steps_per_call):
            if call_metrics and not should_continue(call_metrics):
                break
            call_steps = slice(start, start + steps_per_call)
            part = jax.tree.map(lambda leaf: leaf[call_steps], batches)  # noqa: B023
            carry, metrics = self.train(
                carry, self.parallel.put_whole(part, self.task.batch_axes(part))
            )
            call_metrics.append(metrics)
        return carry, call_metrics

    def run(self, workdir: Path) -> bool:
        """Trains to the end, resuming from the run folder: True when done, False after a request to
        stop, with all saved.
        """
        task = self.task
        settings = self.settings
        hosts = Hosts()
        # `RunFiles` ends first: a second signal must not end the process while the last checkpoint
        # is written.
        with (
            Interruption() as stop,
            RunFiles(
                workdir, task, settings.keep, settings.save_every_seconds, settings.config
            ) as files,
        ):
            # Also in a resumed run, whose checkpoint is read by the shapes of a fresh state.
            state = task.init_state()
            state, position = files.restore(shapes_of(state)) or (state, TrainingPosition())
            profiler = Profiler(workdir, **settings.profile if hosts.is_first else {})
            with contextlib.ExitStack() as stack:
                metrics = None
                if hosts.is_first:
                    # Before the first evaluation nothing was saved: rows of such a start are
                    # dropped.
                    resumed_step = position.step if position.rows else None
                    metrics = stack.enter_context(
                        MetricsWriter(workdir, resumed_step, settings.wandb)
                    )
                output = None if hosts.is_first else io.StringIO()  # the other hosts print nothing
                progress = stack.enter_context(
                    Progress(
                        task.units(task.steps),
                        task.unit,
                        task.title,
                        task.units(position.step),
                        output,
                    )
                )
                # The list holds the only reference, so that each host array is freed once it is on
                # the devices.
                host_carry = [self._carry(state, position.skipped)]
                del state
                carry = self.parallel.replicate_freeing(host_carry)
                # A CPU's cores are busy with one program.
                if self.parallel.platform != "cpu":
                    self.compile_ahead(carry)
                loop = TrainingLoop(
                    self, workdir, carry, position, files, metrics, progress, profiler, stop, hosts
                )
                try:
                    return loop.to_the_end()
                finally:
                    profiler.close()
