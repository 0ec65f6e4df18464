"""Trains a `Task` on the devices in epochs, with evaluations, early stop and exact resume."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import nan_policy
from motif_jax.core.devices import compiled_programs, memory
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import Interruption
from motif_jax.core.metric_files import best_row
from motif_jax.core.metrics import MetricsWriter
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import Progress
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.records import RunFiles
from motif_jax.core.training.task import Task, TrainingPosition, diverged, shapes_of
from motif_jax.core.training.task_use import TaskUse

# Metric of a step: whether all its other metrics are finite.
FINITE = "finite"
# At most two longer steps are in flight, since a request to stop waits for them.
_LONG_STEP_SECONDS = 0.5


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
            wandb = {"project": config.wandb.project, "name": config.wandb.name}
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


class Carry(NamedTuple):
    """Values that a step passes to the next one.

    Attributes:
      state: the state of the task.
      skips_left: remaining budget of steps that are not finite, int32 scalar; -1: exceeded.
      shared: arrays that do not change, see `Task.shared`.
    """

    state: Any
    skips_left: Any
    shared: Any


def make_train_steps(
    guarded_step: Callable[[Any, Any, Any, jax.Array], tuple[Any, dict[str, Any], jax.Array]],
) -> Callable[[Carry, Any], tuple[Carry, dict[str, jax.Array]]]:
    """Returns `train(carry, batches) -> (carry, metrics)`, which takes a `Task.guarded_step` for each batch.

    Batches and metrics have a leading axis of steps; metrics are those of the step and `FINITE`. A step that is not finite
    changes nothing; after more of these than `carry.skips_left` no later step changes anything either.
    """

    def guarded(carry: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
        goes_on = carry.skips_left >= 0
        state, metrics, finite = guarded_step(carry.state, carry.shared, batch, goes_on)
        skips_left = carry.skips_left - (~finite & goes_on).astype(jnp.int32)
        return Carry(state, skips_left, carry.shared), {**metrics, FINITE: finite}

    def train(carry: Carry, batches: Any) -> tuple[Carry, dict[str, jax.Array]]:
        if jax.tree.leaves(batches)[0].shape[0] == 1:
            carry, metrics = guarded(carry, jax.tree.map(lambda leaf: leaf[0], batches))
            return carry, jax.tree.map(lambda number: number[None], metrics)

        def body(inner: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
            new, metrics = guarded(inner._replace(shared=carry.shared), batch)
            return new._replace(shared=None), metrics

        last, metrics = jax.lax.scan(body, carry._replace(shared=None), batches)
        return last._replace(shared=carry.shared), metrics

    return train


class OfflineTrainer:
    """The programs of one training; `run` trains all epochs.

    A program runs a chunk of `task.chunk_steps` steps (on CPU one step), and the host reads the metrics of a chunk while the
    next one runs.
    """

    def __init__(self, task: Task, parallel: DataParallel, settings: TrainerSettings | None = None) -> None:
        self.task = task
        self.parallel = parallel
        self.settings = settings or TrainerSettings()
        # On CPU XLA computes convolutions inside a loop about ten times slower: there every step is a call of its own.
        self.steps_per_call = 1 if parallel.platform == "cpu" else None
        self.train = parallel.wrap(make_train_steps(task.guarded_step), donate_state=True)

    def place(self, state: Any) -> Carry:
        """Puts a host state and the task's shared arrays on every device."""
        return self.parallel.replicate(self._carry(state, 0))

    def _carry(self, state: Any, skipped: int) -> Carry:
        skips_left = np.int32(max(0, self.settings.most_skips - skipped))
        return Carry(state, skips_left, self.task.shared())

    def compile_ahead(self, carry: Carry) -> None:
        """Compiles the programs of batches of several shapes together, where the shapes are known; steps take them from memory."""
        first_steps = self.task.first_chunks()
        lower = getattr(self.train, "lower", None)
        if len(first_steps) < 2 or lower is None:
            return
        lowered = []
        for first in first_steps:
            batches = self.task.batches(first, self.task.chunk_steps)
            batches = jax.tree.map(lambda leaf: leaf[: self.steps_per_call], batches)
            lowered.append(lower(carry, self.parallel.put_whole(batches, self.task.batch_axes(batches))))
        compiled_programs.compile_together(lowered)

    def train_chunk(
        self,
        carry: Carry,
        batches: Any,
        goes_on: Callable[[list[dict[str, jax.Array]]], bool] = lambda started: True,
    ) -> tuple[Carry, list[dict[str, jax.Array]]]:
        """Starts the steps of batches [steps, ...]; returns (new carry, metrics [steps] of each call) without waiting for them.

        `goes_on` gets the metrics of the calls so far, and says whether to start the next call.
        """
        steps = len(jax.tree.leaves(batches)[0])
        steps_per_call = self.steps_per_call or steps
        call_metrics: list[dict[str, jax.Array]] = []
        for start in range(0, steps, steps_per_call):
            if call_metrics and not goes_on(call_metrics):
                break
            call_steps = slice(start, start + steps_per_call)
            part = jax.tree.map(lambda leaf: leaf[call_steps], batches)  # noqa: B023
            carry, metrics = self.train(carry, self.parallel.put_whole(part, self.task.batch_axes(part)))
            call_metrics.append(metrics)
        return carry, call_metrics

    def run(self, workdir: Path) -> bool:
        """Trains to the end, resuming from the run folder: True when done, False after a request to stop, with all saved."""
        task = self.task
        settings = self.settings
        hosts = Hosts()
        with (
            RunFiles(workdir, task, settings.keep, settings.save_every_seconds, settings.config) as files,
            Interruption() as stop,
        ):
            state = task.init_state()
            state, position = files.restore(shapes_of(state)) or (state, TrainingPosition())
            profiler = Profiler(workdir, **settings.profile if hosts.is_first else {})
            with contextlib.ExitStack() as stack:
                metrics = None
                if hosts.is_first:
                    resumed_step = position.step if position.rows else None
                    metrics = stack.enter_context(MetricsWriter(workdir, resumed_step, settings.wandb))
                output = None if hosts.is_first else io.StringIO()  # the other hosts print nothing
                progress = stack.enter_context(
                    Progress(task.units(task.steps), task.unit, task.title, task.units(position.step), output)
                )
                # The list holds the only reference, so that each host array is freed once it is on the devices.
                host_carry = [self._carry(state, position.skipped)]
                del state
                carry = self.parallel.replicate_freeing(host_carry)
                # A CPU's cores are busy with one program.
                if self.parallel.platform != "cpu":
                    self.compile_ahead(carry)
                run = _Run(self, workdir, carry, position, files, metrics, progress, profiler, stop, hosts)
                try:
                    return run.to_the_end()
                finally:
                    profiler.close()


@dataclasses.dataclass
class _Run:
    """The loop of one training, and its outputs; only the first host has `metrics`."""

    trainer: OfflineTrainer
    workdir: Path
    carry: Carry
    position: TrainingPosition
    files: RunFiles
    metrics: MetricsWriter | None
    progress: Progress
    profiler: Profiler
    stop: Interruption
    hosts: Hosts
    # Chunks whose metrics are not read yet: first step, batches, metrics.
    waiting: deque[tuple[int, Any, list[dict[str, jax.Array]]]] = dataclasses.field(default_factory=deque)
    # Metrics of the steps since the last row of `Task.logged`, and its time.
    unlogged: list[Mapping[str, np.ndarray]] = dataclasses.field(default_factory=list)
    logged_at: float = dataclasses.field(default_factory=time.monotonic)
    # Seconds of a step, and when metrics were read last.
    step_seconds: float = math.inf
    read_at: float = dataclasses.field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.use = TaskUse(self.trainer.task, self.trainer.parallel)

    def to_the_end(self) -> bool:
        """Trains and evaluates until the last step; False after a request to stop, with all saved."""
        steps = self.trainer.task.steps
        if not self.position.rows:
            self._evaluate_and_save()
        while self.position.step < steps and not self._stops_early():
            if not self._one_epoch():
                return False
            self._evaluate_and_save()
            if self.position.step < steps and self.hosts.any(self.stop.requested):
                return False
        self.files.write_summary(self.position, use_best=self.trainer.settings.patience > 0)
        return True

    def _stops_early(self) -> bool:
        """Whether the last `patience` evaluations were no better than the best one before."""
        patience = self.trainer.settings.patience
        if patience == 0:
            return False
        best = best_row(self.position.rows, self.trainer.task.criterion)
        return self.position.epoch - best >= patience

    def _one_epoch(self) -> bool:
        """Trains to the end of the epoch; saves and returns False after a request to stop."""
        task = self.trainer.task
        epoch_start = self.position.epoch * task.steps_per_epoch
        epoch_end = min(epoch_start + task.steps_per_epoch, task.steps)
        step = self.position.step
        while step < epoch_end:
            # A resumed run keeps the chunks of an uninterrupted one, and so the batches' shapes, on which dropout depends.
            done_in_chunk = (step - epoch_start) % task.chunk_steps
            chunk_start = step - done_in_chunk
            self.profiler.step(step // task.chunk_steps)
            count = min(task.chunk_steps, epoch_end - chunk_start)
            chunk = task.batches_for(self.carry.state, self.carry.shared, chunk_start, count)
            batches = jax.tree.map(lambda leaf: leaf[done_in_chunk:], chunk)  # noqa: B023
            self.carry, call_metrics = self.trainer.train_chunk(self.carry, batches, self._goes_on)
            self.waiting.append((step, batches, call_metrics))
            started = sum(len(metrics[FINITE]) for metrics in call_metrics)
            self.use.add(self.carry.state, self.carry.shared, batches, started)
            step += started
            if len(self.waiting) > 1:
                self._read()
            # At the end of an epoch the evaluation is saved instead.
            if step < epoch_end:
                # The first host's clock decides whether to save.
                due = self.hosts.is_first and self.files.save_is_due()
                stops, saves = self.hosts.sum([int(self.stop.requested), int(due)])
                if stops or saves:
                    self._read_all()
                    self.files.save_position(self.carry.state, self.position)
                if stops:
                    return False
        self._read_all()
        return True

    def _goes_on(self, started: list[dict[str, jax.Array]]) -> bool:
        """Whether to start the next call of a chunk, after those whose metrics are `started`."""
        if self.step_seconds > _LONG_STEP_SECONDS and len(started) > 1:
            jax.block_until_ready(started[-2])
        # Several hosts stop together, at the end of a chunk.
        return self.hosts.count > 1 or not self.stop.requested

    def _evaluate_and_save(self) -> None:
        start = time.monotonic()
        position = self.position
        use = self.use.read()
        evaluation = self.trainer.task.evaluate(self.carry.state, self.carry.shared, position)
        row = {"epoch": len(position.rows), "step": position.step, **evaluation.row}
        position.rows.append(row)
        position.sums = {}
        values = {name: value for name, value in row.items() if "/" in name}
        self._write(position.step, values | use | {"evaluation/seconds": time.monotonic() - start})
        # Metrics first: a resumed run writes again the steps that are in no checkpoint, and no others.
        self.files.save_evaluation(self.carry.state, position, evaluation)
        self.progress.log(evaluation.text)
        self.use.read()  # an evaluation is no part of the next steps' time

    def _read_all(self) -> None:
        while self.waiting:
            self._read()

    def _read(self) -> None:
        """Waits for the oldest chunk, and counts, logs and shows its metrics. Raises UserError: the training diverged."""
        first, batches, device_metrics = self.waiting.popleft()
        call_metrics = jax.device_get(device_metrics)

        now = time.monotonic()
        self.step_seconds = (now - self.read_at) / sum(len(metrics[FINITE]) for metrics in call_metrics)
        self.read_at = now

        for metrics in call_metrics:
            self._count(first, batches, metrics)

        task = self.trainer.task
        fields: dict[str, float | str] = {**task.shown(self.position.sums)}
        in_use = memory.in_use(self.trainer.parallel.local_devices[0])
        if in_use is not None:
            fields["device_memory"] = in_use
        self.progress.update(task.units(self.position.step), **fields)

    def _count(self, first: int, batches: Any, metrics: dict[str, np.ndarray]) -> None:
        """Moves the position over the steps of one call, whose metrics are arrays [steps]; `first` is the chunk's step."""
        task = self.trainer.task
        position = self.position
        finite = metrics.pop(FINITE)
        skips_left = max(0, self.trainer.settings.most_skips - position.skipped)
        nonfinite = np.flatnonzero(~finite)
        # The device applied no step from the one on that exceeded the budget.
        end = int(nonfinite[skips_left]) if len(nonfinite) > skips_left else len(finite)
        messages = [
            self._save_batch(first, batches, metrics, int(index)) for index in nonfinite[: skips_left + 1]
        ]

        applied = np.flatnonzero(finite[:end])
        position.skipped += end - len(applied)
        if len(applied):
            applied_metrics = {name: values[applied] for name, values in metrics.items()}
            position.add(task.tally(applied_metrics))
            self._log(applied_metrics, position.step + end)
        position.step += end

        if end < len(finite):
            self.files.save_position(self.carry.state, position)
            raise diverged(messages[-1], task.remedy + self._policy())
        for message in messages:
            self.progress.log(f"left out: {message}")

    def _log(self, metrics: Mapping[str, np.ndarray], step: int) -> None:
        """Collects the metrics of the steps up to `step`, and writes a row when it is due."""
        every = self.trainer.settings.log_every_seconds
        if every is None:
            return
        seconds = time.monotonic() - self.logged_at
        self.unlogged.append(metrics)
        if seconds >= every:
            joined = {name: np.concatenate([part[name] for part in self.unlogged]) for name in metrics}
            self._write(step, {**self.trainer.task.logged(joined, seconds), **self.use.read()})
            self.unlogged = []
            self.logged_at = time.monotonic()

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        if self.metrics is not None:
            self.metrics.write(step, values)

    def _save_batch(self, first: int, batches: Any, metrics: Mapping[str, np.ndarray], offset: int) -> str:
        """Writes the batch of the step `offset` steps after the position; returns the error message."""
        step = self.position.step + offset
        numbers = {name: values[offset] for name, values in metrics.items()}
        wrong = [name for name, number in numbers.items() if not np.isfinite(number)]
        batch = self.trainer.task.inspected(jax.tree.map(lambda leaf: leaf[step - first], batches))
        path = nan_policy.path_of(self.workdir, step)
        if self.hosts.is_first:
            nan_policy.write_batch(self.workdir, step, {**batch, **numbers})
        return f"{', '.join(wrong)} of step {step:,} not finite (its batch is in {path})"

    def _policy(self) -> str:
        """The policy on steps that are not finite, for the error that ends the training."""
        budget = self.trainer.settings.most_skips
        if budget:
            return f"; {self.position.skipped} steps were left out already (--config.nonfinite.most_skips={budget})"
        return "; --config.nonfinite.policy=skip continues without that step"
