"""Trains from a dataset: from a stage's config to the result in its run folder.

A reader meets, in this order: `run`, what each stage calls; `OfflineTrainer`, the loop of one
training; and `make_train_steps`, the program of a chunk of its steps. What is trained is a
`task.Task`, files are `run_files`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import nan_policy, run_folder
from motif_jax.core.devices import compiled_programs, jax_options, memory, sharding
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.interruption import EXIT_CODE, Interruption
from motif_jax.core.metric_files import best_row
from motif_jax.core.metrics import MetricsWriter, import_wandb
from motif_jax.core.profiling import Profiler
from motif_jax.core.progress import Progress
from motif_jax.core.sections import Sharding
from motif_jax.core.training import schedules
from motif_jax.core.training.config import DatasetConfig
from motif_jax.core.training.run_files import RunFiles
from motif_jax.core.training.task import CRITERION, Task, TrainingPosition, diverged, shapes_of
from motif_jax.core.training.task_use import TaskUse

# At most two longer steps are in flight, since a request to stop waits for them.
_LONG_STEP_SECONDS = 0.5
# Metric of a step: whether all its other metrics are finite.
FINITE = "finite"


@dataclasses.dataclass(frozen=True)
class OfflineRun:
    """A task, and what its stage prints and writes.

    Attributes:
      task: the task to train.
      about: lines to log before the first step, about the model and its data.
      finish: writes the result after the last step and returns its path, or a line to log. None:
        the checkpoints are the result.
    """

    task: Task
    about: str
    finish: Callable[[], str | Path] | None = None


def check(config: DatasetConfig, steps: int | None) -> None:
    """Checks the keys that all offline trainings have. Raises UserError.

    Args:
      steps: number of optimiser steps; None where the data decide it.
    """
    if steps is not None:
        schedules.check_warmup(config.optimizer, steps)
    jax_options.set_matmul_precision(config.matmul_precision)
    sharding.check_config(config, jax.local_device_count(), jax.process_count())
    if config.wandb.enabled:
        import_wandb()


def mesh_sizes(config: DatasetConfig) -> dict[str, int]:
    """Devices along each axis of the mesh of a training."""
    model_axes = dataclasses.asdict(config.sharding or Sharding())
    devices = len(sharding.training_devices(config.num_devices))
    return {"data": devices // math.prod(model_axes.values()), **model_axes}


def devices_of(config: DatasetConfig) -> DataParallel:
    """The devices that train, with split parameters where `config.sharding` asks for it."""
    devices = sharding.training_devices(config.num_devices)
    sizes = mesh_sizes(config)
    # Nothing is split: each device holds the whole state.
    if sizes["data"] == len(devices):
        return DataParallel(devices)
    return sharding.Sharded(sizes, devices)


def numbers_in(tree: Any) -> int:
    """Number of elements of all arrays or shapes in a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def run(
    config: DatasetConfig,
    plain_config: Mapping[str, Any],
    workdir: Path,
    identity: Iterable[str],
    build: Callable[[Callable[[], bool]], OfflineRun | None],
    free: Iterable[str] = (),
) -> int:
    """Trains, or resumes, and writes the result; returns 0, or 75 after a request to stop.

    Args:
      config: the config as the trainer reads it.
      plain_config: the config as its file and flags set it, for the run folder.
      identity: keys with which a run continues, but for `free` ones, see `run_folder.prepare`.
      build: makes missing files in `workdir` and the run, or returns None after a request to stop,
          which its argument tells.
    """
    hosts = Hosts()
    offline_run: OfflineRun | None = None

    def make() -> None:
        nonlocal offline_run
        offline_run = build(lambda: stop.requested)

    def make_on_first_host() -> None:
        run_folder.prepare(workdir, plain_config, identity, free)
        make()

    with hosts.locked(workdir):
        # Preparations may take minutes, as tokens of a large file do: a request stops them, too.
        # The trainer has an `Interruption` of its own.
        with Interruption() as stop:
            if hosts.count > 1:
                hosts.require_alike(plain_config)
            # The first host makes the files, then the others read them.
            hosts.on_first(make_on_first_host)
            hosts.require_shared(workdir)
            if hosts.any(stop.requested):
                return EXIT_CODE
            if not hosts.is_first:
                make()
            # All hosts take part in `any`, so it comes before the test of this host's own run.
            if hosts.any(offline_run is None or stop.requested) or offline_run is None:
                return EXIT_CODE
        devices = offline_run.task.parallel.devices
        hosts.say(f"{offline_run.about}; {len(devices)} {devices[0].device_kind} device(s)")
        if not OfflineTrainer(offline_run.task, config, plain_config).run(workdir):
            return EXIT_CODE
        # Here every step was taken. A stop or a kill in `finish` costs only it: the same command
        # writes the result again.
        result = offline_run.finish() if offline_run.finish is not None else None
        if result:
            hosts.say(f"written: {result}" if isinstance(result, Path) else result)
        return 0


class OfflineTrainer:
    """The loop of one training: chunks of steps, metrics, evaluations, saves, early stop.

    A program runs a chunk of `task.chunk_steps` steps (on CPU one step). The host starts a chunk on
    the devices, and then reads the metrics of the chunk before, so that neither waits for the
    other. Each evaluation's checkpoint holds `plain_config`, the config as its file and flags set
    it.
    """

    # Those of a training that runs, set by `run`.
    workdir: Path
    carry: Carry
    position: TrainingPosition
    files: RunFiles
    stop: Interruption
    metrics: MetricsWriter | None  # None but on the first host
    progress: Progress
    profiler: Profiler
    use: TaskUse

    def __init__(
        self, task: Task, config: DatasetConfig, plain_config: Mapping[str, Any] | None = None
    ) -> None:
        self.task = task
        self.config = config
        self.plain_config = plain_config
        self.parallel = task.parallel
        self.hosts = Hosts()
        # On CPU XLA computes convolutions inside a loop about ten times slower: there every step is
        # a call of its own.
        self.steps_per_call = 1 if self.parallel.platform == "cpu" else None
        self.train = self.parallel.wrap(make_train_steps(task.guarded_step), donate_state=True)
        # Chunks whose metrics are not read yet: first step, batches, metrics of each call.
        self.waiting: deque[tuple[int, Any, list[dict[str, jax.Array]]]] = deque()
        # Metrics of the steps since the last row of `Task.logged`, and its time.
        self.unlogged: list[Mapping[str, np.ndarray]] = []
        self.logged_at = 0.0
        # Seconds of a step, and when metrics were read last.
        self.step_seconds = math.inf
        self.read_at = 0.0

    def run(self, workdir: Path) -> bool:
        """Trains to the end, resuming from the run folder: True when done, False after a request to
        stop, with all saved.
        """
        task = self.task
        config = self.config
        self.workdir = workdir
        with contextlib.ExitStack() as stack:
            self.stop = stack.enter_context(Interruption())
            # Ends before the `Interruption`: a second signal must not end the process while the
            # last checkpoint is written.
            self.files = stack.enter_context(RunFiles(workdir, task, config, self.plain_config))

            # STATE: the newest checkpoint's, or a fresh one
            # The fresh one also in a resumed run, whose checkpoint is read by its shapes.
            state = task.init_state()
            state, self.position = self.files.restore(shapes_of(state)) or (
                state,
                TrainingPosition(),
            )

            # OUTPUTS
            self.metrics = None
            profile = {}
            output: io.StringIO | None = io.StringIO()  # the other hosts print nothing
            if self.hosts.is_first:
                profile = dataclasses.asdict(config.profile)
                output = None
                # Before the first evaluation nothing was saved: rows of such a start are dropped.
                resumed_step = self.position.step if self.position.rows else None
                wandb = {"project": config.wandb.project} if config.wandb.enabled else None
                self.metrics = stack.enter_context(MetricsWriter(workdir, resumed_step, wandb))
            self.progress = stack.enter_context(
                Progress(
                    task.units(task.steps),
                    task.unit,
                    task.title,
                    task.units(self.position.step),
                    output,
                )
            )
            self.profiler = Profiler(workdir, **profile)
            stack.callback(self.profiler.close)

            # DEVICES
            # The list holds the only reference, so that each host array is freed once it is on the
            # devices.
            host_carry = [self._carry(state, self.position.skipped)]
            del state
            self.carry = self.parallel.replicate_freeing(host_carry)
            # A CPU's cores are busy with one program.
            if self.parallel.platform != "cpu":
                self.compile_ahead(self.carry)

            self.use = TaskUse(task, self.parallel)
            self.logged_at = time.monotonic()
            self.read_at = time.monotonic()
            return self._to_the_end()

    def _to_the_end(self) -> bool:
        """Trains and evaluates until the last step; False after a request to stop, with all
        saved.
        """
        steps = self.task.steps
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
        self.files.write_summary(self.position, use_best=self.config.early_stopping.patience > 0)
        return True

    def _stops_early(self) -> bool:
        """Whether the last `patience` evaluations were no better than the best one before."""
        patience = self.config.early_stopping.patience
        if patience == 0:
            return False
        return self.position.epoch - best_row(self.position.rows, CRITERION) >= patience

    def _one_epoch(self) -> bool:
        """Trains to the end of the epoch; saves and returns False after a request to stop."""
        task = self.task
        epoch_start = self.position.epoch * task.steps_per_epoch
        epoch_end = min(epoch_start + task.steps_per_epoch, task.steps)
        step = self.position.step
        while step < epoch_end:
            # BATCHES
            # A resumed run keeps the chunks of an uninterrupted one, and so the batches' shapes, on
            # which dropout depends.
            done_in_chunk = (step - epoch_start) % task.chunk_steps
            chunk_start = step - done_in_chunk
            # A profile counts chunks, not steps.
            self.profiler.step(step // task.chunk_steps)
            count = min(task.chunk_steps, epoch_end - chunk_start)
            chunk = task.batches(chunk_start, count)
            batches = jax.tree.map(lambda leaf: leaf[done_in_chunk:], chunk)  # noqa: B023

            # STEPS
            self.carry, call_metrics = self.train_chunk(self.carry, batches, self.should_continue)
            self.waiting.append((step, batches, call_metrics))
            started = sum(len(metrics[FINITE]) for metrics in call_metrics)
            self.use.add(self.carry.state, self.carry.shared, batches, started)
            step += started

            # METRICS: the newest chunk is under way; the one before it is read meanwhile
            if len(self.waiting) > 1:
                self._read()

            # SAVE: at the end of an epoch the evaluation is saved instead
            if step < epoch_end:
                # The first host's clock decides whether to save.
                due = self.hosts.is_first and self.files.save_is_due()
                # One collective call for both questions. All hosts get the same answers at the same
                # chunk.
                stops, saves = self.hosts.sum([int(self.stop.requested), int(due)])
                if stops or saves:
                    self._read_all()
                    self.files.save_position(self.carry.state, self.position)
                if stops:
                    return False
        self._read_all()
        return True

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
        evaluation = self.task.evaluate(self.carry.state, self.carry.shared, position)
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
        steps = sum(len(metrics[FINITE]) for metrics in call_metrics)
        self.step_seconds = (now - self.read_at) / steps
        self.read_at = now

        for metrics in call_metrics:
            self._count(first, batches, metrics)

        task = self.task
        fields: dict[str, float | str] = {**task.shown(self.position.sums)}
        in_use = memory.in_use(self.parallel.local_devices[0])
        if in_use is not None:
            fields["device_memory"] = in_use
        self.progress.update(task.units(self.position.step), **fields)

    def _count(self, first: int, batches: Any, metrics: dict[str, np.ndarray]) -> None:
        """Moves the position over the steps of one call, whose metrics are arrays [steps]; `first`
        is the chunk's step.
        """
        task = self.task
        position = self.position
        finite = metrics.pop(FINITE)
        skips_left = self._skips_left(position.skipped)
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
        every = self.config.log_every_seconds
        if every is None:
            return
        seconds = time.monotonic() - self.logged_at
        self.unlogged.append(metrics)
        if seconds >= every:
            joined = {
                name: np.concatenate([part[name] for part in self.unlogged]) for name in metrics
            }
            self._write(step, {**self.task.logged(joined, seconds), **self.use.read()})
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
        batch = self.task.inspected(jax.tree.map(lambda leaf: leaf[step - first], batches))
        path = nan_policy.path_of(self.workdir, step)
        if self.hosts.is_first:
            nan_policy.write_batch(self.workdir, step, {**batch, **numbers})
        return f"{', '.join(wrong)} of step {step:,} not finite (its batch is in {path})"

    def _policy(self) -> str:
        """The policy on steps that are not finite, for the error that ends the training."""
        budget = self.config.nonfinite.budget
        if budget:
            return f"; {self.position.skipped} steps were left out already (--config.nonfinite.most_skips={budget})"
        return "; --config.nonfinite.policy=skip continues without that step"

    def place(self, state: Any) -> Carry:
        """Puts a host state and the task's shared arrays on every device."""
        return self.parallel.replicate(self._carry(state, 0))

    def _carry(self, state: Any, skipped: int) -> Carry:
        return Carry(state, np.int32(self._skips_left(skipped)), self.task.shared())

    def _skips_left(self, skipped: int) -> int:
        """The rest of the budget of steps that are not finite."""
        return max(0, self.config.nonfinite.budget - skipped)

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
    """Returns `train(carry, batches) -> (carry, metrics)`, which takes a `Task.guarded_step` for
    each batch.

    Batches and metrics have a leading axis of steps; metrics are those of the step and `FINITE`. A
    step that is not finite changes nothing; after more of these than `carry.skips_left` no later
    step changes anything either.
    """

    def guarded(carry: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
        may_apply = carry.skips_left >= 0
        state, metrics, finite = guarded_step(carry.state, carry.shared, batch, may_apply)
        # Once below zero it stays there, since `may_apply` is false from then on.
        skips_left = carry.skips_left - (~finite & may_apply).astype(jnp.int32)
        return Carry(state, skips_left, carry.shared), {**metrics, FINITE: finite}

    def train(carry: Carry, batches: Any) -> tuple[Carry, dict[str, jax.Array]]:
        # A step by itself needs no loop, in which XLA is slow on a CPU (`OfflineTrainer`).
        if jax.tree.leaves(batches)[0].shape[0] == 1:
            carry, metrics = guarded(carry, jax.tree.map(lambda leaf: leaf[0], batches))
            return carry, jax.tree.map(lambda number: number[None], metrics)

        def body(inner: Carry, batch: Any) -> tuple[Carry, dict[str, jax.Array]]:
            # The shared arrays do not change, so the loop reads them from outside instead of
            # carrying them.
            new, metrics = guarded(inner._replace(shared=carry.shared), batch)
            return new._replace(shared=None), metrics

        last, metrics = jax.lax.scan(body, carry._replace(shared=None), batches)
        return last._replace(shared=carry.shared), metrics

    return train
