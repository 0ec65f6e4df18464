"""The loop of one training: chunks of steps, metrics, evaluations, saves, early stop.

The host starts a chunk on the devices, and then reads the metrics of the chunk before, so that
neither waits for the other.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from motif_jax.core import nan_policy
from motif_jax.core.devices import memory
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.interruption import Interruption
from motif_jax.core.metric_files import best_row
from motif_jax.core.metrics import MetricsWriter
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import Progress
from motif_jax.core.training.run_files import RunFiles
from motif_jax.core.training.task import TrainingPosition, diverged
from motif_jax.core.training.task_use import TaskUse
from motif_jax.core.training.train_steps import FINITE, Carry

if TYPE_CHECKING:
    from motif_jax.core.training.trainer import OfflineTrainer

# At most two longer steps are in flight, since a request to stop waits for them.
_LONG_STEP_SECONDS = 0.5


@dataclasses.dataclass
class TrainingLoop:
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
    waiting: deque[tuple[int, Any, list[dict[str, jax.Array]]]] = dataclasses.field(
        default_factory=deque
    )
    # Metrics of the steps since the last row of `Task.logged`, and its time.
    unlogged: list[Mapping[str, np.ndarray]] = dataclasses.field(default_factory=list)
    logged_at: float = dataclasses.field(default_factory=time.monotonic)
    # Seconds of a step, and when metrics were read last.
    step_seconds: float = math.inf
    read_at: float = dataclasses.field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.use = TaskUse(self.trainer.task, self.trainer.parallel)

    def to_the_end(self) -> bool:
        """Trains and evaluates until the last step; False after a request to stop, with all
        saved.
        """
        steps = self.trainer.task.steps
        if not self.position.rows:
            self._evaluate_and_save()
        elif self.position.step < steps and not self._stops_early():
            self.progress.log(f"goes on at step {self.position.step:,} of {steps:,}")
        while self.position.step < steps and not self._stops_early():
            if not self._one_epoch():
                return False
            self._evaluate_and_save()
            # The evaluation was saved just now, so nothing is lost.
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
            # A resumed run keeps the chunks of an uninterrupted one, and so the batches' shapes, on
            # which dropout depends.
            done_in_chunk = (step - epoch_start) % task.chunk_steps
            chunk_start = step - done_in_chunk
            # A profile counts chunks, not steps.
            self.profiler.step(step // task.chunk_steps)
            count = min(task.chunk_steps, epoch_end - chunk_start)
            chunk = task.batches(chunk_start, count)
            batches = jax.tree.map(lambda leaf: leaf[done_in_chunk:], chunk)  # noqa: B023
            self.carry, call_metrics = self.trainer.train_chunk(
                self.carry, batches, self.should_continue
            )
            self.waiting.append((step, batches, call_metrics))
            started = sum(len(metrics[FINITE]) for metrics in call_metrics)
            self.use.add(self.carry.state, self.carry.shared, batches, started)
            step += started
            # The newest chunk is under way; the one before it is read meanwhile.
            if len(self.waiting) > 1:
                self._read()
            # At the end of an epoch the evaluation is saved instead.
            if step < epoch_end:
                # The first host's clock decides whether to save.
                due = self.hosts.is_first and self.files.save_is_due()
                # One collective call for both questions. All hosts get the same answers at the same
                # chunk.
                requests = [int(self.stop.requested), int(due)]
                stops, saves = self.hosts.sum(requests)
                if stops or saves:
                    self._read_all()
                    self.files.save_position(self.carry.state, self.position)
                if stops:
                    return False
        self._read_all()
        return True

    def should_continue(self, started: list[dict[str, jax.Array]]) -> bool:
        """Whether to start the next call of a chunk, after those whose metrics are `started`."""
        if self.step_seconds > _LONG_STEP_SECONDS and len(started) > 1:
            jax.block_until_ready(started[-2])
        # Several hosts stop together, at the end of a chunk.
        return self.hosts.count > 1 or not self.stop.requested

    def _evaluate_and_save(self) -> None:
        start = time.monotonic()
        position = self.position
        # Before the evaluation, whose time is not that of steps.
        use = self.use.read()
        evaluation = self.trainer.task.evaluate(self.carry.state, self.carry.shared, position)
        row = {"epoch": len(position.rows), "step": position.step, **evaluation.row}
        position.rows.append(row)
        position.sums = {}
        values = {name: value for name, value in row.items() if "/" in name}
        self._write(position.step, values | use | {"evaluation/seconds": time.monotonic() - start})
        # Metrics first: a resumed run writes again the steps that are in no checkpoint, and no
        # others.
        self.files.save_evaluation(self.carry.state, position, evaluation)
        self.progress.log(evaluation.text)
        # An evaluation is not part of the next steps' time.
        self.use.read()
        self.logged_at += time.monotonic() - start

    def _read_all(self) -> None:
        while self.waiting:
            self._read()

    def _read(self) -> None:
        """Waits for the oldest chunk, and counts, logs and shows its metrics. Raises UserError: the
        training diverged.
        """
        first, batches, device_metrics = self.waiting.popleft()
        call_metrics = jax.device_get(device_metrics)

        now = time.monotonic()
        self.step_seconds = (now - self.read_at) / sum(
            len(metrics[FINITE]) for metrics in call_metrics
        )
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
        """Moves the position over the steps of one call, whose metrics are arrays [steps]; `first`
        is the chunk's step.
        """
        task = self.trainer.task
        position = self.position
        finite = metrics.pop(FINITE)
        skips_left = max(0, self.trainer.settings.most_skips - position.skipped)
        nonfinite = np.flatnonzero(~finite)
        # The device applied no step from the one on that exceeded the budget.
        end = int(nonfinite[skips_left]) if len(nonfinite) > skips_left else len(finite)
        messages = [
            self._save_batch(first, batches, metrics, int(index))
            for index in nonfinite[: skips_left + 1]
        ]

        applied = np.flatnonzero(finite[:end])
        # Steps after `end` were started, but the device has not applied them: they do not count.
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
            joined = {
                name: np.concatenate([part[name] for part in self.unlogged]) for name in metrics
            }
            self._write(step, {**self.trainer.task.logged(joined, seconds), **self.use.read()})
            self.unlogged = []
            self.logged_at = time.monotonic()

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        if self.metrics is not None:
            self.metrics.write(step, values)

    def _save_batch(
        self, first: int, batches: Any, metrics: Mapping[str, np.ndarray], offset: int
    ) -> str:
        """Writes the batch of the step `offset` steps after the position; returns the error
        message.
        """
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
