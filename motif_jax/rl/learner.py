"""The learner: runs an algorithm's update on its devices, publishes the parameters and reads the
metrics; and what follows from an update that is not finite, as `config.nonfinite` says (`Guard`).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core import nan_policy
from motif_jax.core.devices.memory import return_freed_memory
from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import Patience
from motif_jax.core.sections import Nonfinite
from motif_jax.core.training.finite import all_finite, keep_if, named_leaves
from motif_jax.rl.algorithms.algorithm import (
    CONSTANT,
    COUNTS,
    EXTREMES,
    MEMORY,
    Algorithm,
    fields_in,
)
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.batcher import Batch
from motif_jax.rl.inference import Publisher

# The host's reduction for each reduction of the update on the device; None for metrics that are
# averaged.
_REDUCTIONS: dict[Any, Callable[[np.ndarray], Any]] = {
    None: np.mean,
    jnp.min: np.min,
    jnp.max: np.max,
}
# A finite update has finite metrics in these groups; others may be means over no rows.
_FINITE_GROUPS = ("loss/", "optimizer/", "reward/", "value/")
# Entries of a checkpoint's progress: the number of skipped updates, and the one that ended the run
# (None: none did).
SKIPPED = "skipped_updates"
ENDED_BY = "ended_by"
# Whether the numbers that were not finite in that update came from the environment.
BY_ENVIRONMENT = "ended_by_environment"
_MAX_NAMES = 3  # in a line for the user
# Names of leaves of a batch.
_REWARD = "reward"
_OBSERVATION = "observation/"


class Failure(NamedTuple):
    """A skipped update."""

    update: int  # its number from 0
    names: list[str]  # metrics, or a phrase, for what was not finite
    batch: Batch


class Learner:
    """Holds the training state and updates it. An update that is not finite leaves the state as it
    was, and joins `failures`.

    The host prepares batches while an update runs: `step` only launches it, and `finish_update`
    waits for it.

    Args:
      shares_frozen: publishes the frozen part of the state without a copy; allowed only where
        nobody acts during updates.

    Attributes:
      state: the training state on the learner's devices.
      update_program: the compiled update (state, trajectories) -> (state, metrics float32
        [1 + metrics]); the first number says whether the update was finite. It takes over the
        memory of the old state.
      version: the number of updates in `state`.
      failures: skipped updates that nobody has taken yet.
      patience: with a stop while an update runs; None: a stop waits for the update.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        state: Any,
        parallel: DataParallel,
        publisher: Publisher,
        meters: Meters,
        shares_frozen: bool = False,
    ) -> None:
        self._algorithm = algorithm
        self._shares_frozen = shares_frozen
        self._publisher = publisher
        self._parallel = parallel
        self._meters = meters
        self.version = int(state.step)
        self.state: Any = parallel.replicate(state)
        self.failures: list[Failure] = []
        self.patience: Patience | None = None
        # in the order of the device's array; known once `_update_if_finite` is traced
        self._metric_names: list[str] = []
        self.update_program = parallel.wrap(self._update_if_finite, donate_state=True)
        # The running update's metrics, number and batch, and those of the newest finished one.
        self._running: tuple[jax.Array, int, Batch] | None = None
        self._done: tuple[jax.Array, int, Batch] | None = None
        self._launched_at = 0.0
        self._has_finished_update = False
        # Inference compiles and acts with these before the first update.
        self.publish()

    def _update_if_finite(self, state: Any, batch: TrajectoryBatch) -> tuple[Any, jax.Array]:
        """The learner's program on one device's part of a batch, see `update_program`."""
        update = self._algorithm.update(state, batch, axis_name=AXIS)
        # Behind the barrier, the check for finite numbers cannot change the bits of an update.
        new, metrics = jax.lax.optimization_barrier(update)

        # Constant parts and the memory are not checked, and `keep_if` would copy them.
        memory = fields_in(state, (MEMORY,))
        unchecked = dict.fromkeys((*fields_in(state, CONSTANT), *memory), ())
        new_checked = new._replace(**unchecked)
        is_finite = all_finite(new_checked)
        watched = [value for name, value in metrics.items() if name.startswith(_FINITE_GROUPS)]
        next_state = keep_if(
            is_finite & all_finite(watched), new_checked, state._replace(**unchecked)
        )
        next_state = next_state._replace(**{name: getattr(state, name) for name in unchecked})
        counted = (*fields_in(state, COUNTS), *memory)
        next_state = next_state._replace(**{name: getattr(new, name) for name in counted})

        # One array, so one transfer, instead of dozens. The names are noted at the trace.
        self._metric_names[:] = sorted(metrics)
        values = [is_finite, *(metrics[name] for name in self._metric_names)]
        return next_state, jnp.stack([value.astype(jnp.float32) for value in values])

    def step(self, batch: Batch) -> None:
        """Launches an update with `batch`, after the running one has ended."""
        self.finish_update()
        self._launched_at = time.perf_counter()
        self.state, metrics = self.update_program(self.state, batch.trajectories)
        # The copy to the host follows the update at once, since the devices idle until the next
        # update.
        metrics.copy_to_host_async()
        # The batch is kept until the metrics are read: that of a failed update goes to a file.
        self._running = (metrics, self.version, batch)
        self.version += 1
        self._meters.add("learner/updates", 1)
        self._meters.add("learner/bytes", batch.num_bytes)

    def finish_update(self) -> None:
        """Waits for the running update and publishes its parameters before the next one: inference
        waits for one update at most.

        Raises StoppedError: a stop was requested and `patience` is at its end. The learner cannot
        be used any more.
        """
        if self._running is None:
            return
        metrics = self._running[0]
        # If the update has already ended, this time is only an upper bound.
        self._meters.add("learner/late", float(metrics.is_ready()))  # type: ignore[attr-defined]
        self._wait(metrics)
        self._meters.add("learner/update", time.perf_counter() - self._launched_at)
        self.publish()
        self._done = self._running
        self._running = None
        if not self._has_finished_update:
            self._has_finished_update = True
            return_freed_memory()  # of the compiler

    def _wait(self, metrics: jax.Array) -> None:
        if self.patience is not None:
            # Signals are handled between Python's instructions, so not while this thread waits
            # inside of jax.
            start = time.monotonic()
            while not metrics.is_ready():  # type: ignore[attr-defined]
                self.patience.check()
                one_percent = 0.01 * (time.monotonic() - start)
                time.sleep(min(max(one_percent, 0.001), 0.1))
        jax.block_until_ready(metrics)

    def publish(self) -> None:
        """Publishes the parameters of `state`, as the learner does after every update, and after a
        new state was set.
        """
        params = self._parallel.acting(self._algorithm.published(self.state))
        if self._shares_frozen:
            frozen = self._parallel.acting(self.state.frozen)
            self._publisher.publish(self.version, params, frozen)
        else:
            self._publisher.publish(self.version, params)

    def rows_of(self, failure: Failure) -> TrajectoryBatch:
        """This host's part of the batch of an update that was not finite, as numpy arrays."""
        return self._parallel.own_part(failure.batch.trajectories)

    def metrics(self) -> dict[str, float]:
        """Metrics of the newest finished update, once for each update; {} and a failure where it is
        not finite.
        """
        if self._done is None:
            return {}
        array, update, batch = self._done
        self._done = None
        is_finite, *values = np.asarray(array).tolist()
        metrics = dict(zip(self._metric_names, values, strict=True))
        not_finite = []
        for name, value in metrics.items():
            if name.startswith(_FINITE_GROUPS) and not math.isfinite(value):
                not_finite.append(name)
        if not is_finite:
            not_finite.append("the parameters that it gives")
        if not not_finite:
            return metrics
        self.failures.append(Failure(update, not_finite, batch))
        return {}


class Averages:
    """Means of metrics between two rows of the log, and the extremes of `update.EXTREMES`."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._values.setdefault(name, []).append(value)

    def read(self) -> dict[str, float]:
        """The reduced metrics since the last call."""
        reduced = {}
        for name, values in self._values.items():
            reduce = _REDUCTIONS[EXTREMES.get(name)]
            reduced[name] = reduce(np.asarray(values)).item()
        self._values = {}
        return reduced


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


class Guard:
    """Counts a run's skipped updates, and ends it where they are too many; the host with a
    `workdir` writes.

    All hosts see the same: finiteness is reduced over all devices. A resume with a lower limit
    accepts the updates that were skipped before. A run that ended at an update resumes only with a
    limit that lets this update be skipped, too.
    """

    def __init__(
        self, nonfinite: Nonfinite, workdir: Path | None, progress: dict[str, Any]
    ) -> None:
        self._workdir = workdir
        self._budget = nonfinite.budget
        self.skipped: int = progress.get(SKIPPED, 0)
        # With a higher limit than the number of skipped updates the run goes on.
        self._ended_by: str | None = progress.get(ENDED_BY) if self.skipped > self._budget else None
        self._by_environment = bool(progress.get(BY_ENVIRONMENT, False))

    @property
    def exceeded(self) -> bool:
        """Whether more updates were skipped than the config allows."""
        return self._ended_by is not None

    def progress(self) -> dict[str, Any]:
        """Entries of a checkpoint's progress."""
        return {
            SKIPPED: self.skipped,
            ENDED_BY: self._ended_by,
            BY_ENVIRONMENT: self._by_environment,
        }

    def check(self, learner: Learner) -> None:
        """Takes the learner's failures; prints each that may be skipped."""
        failures = learner.failures
        learner.failures = []
        for failure in failures:
            self.skipped += 1
            line = self._describe(learner, failure)
            if self.skipped > self._budget:
                self._ended_by = line
            elif self._workdir is not None:
                line += f": left out ({self.skipped} of at most {self._budget})"
                print(line, file=sys.stderr, flush=True)

    def require(self, step: int) -> None:
        """Raises UserError if the run must end; its checkpoint is that of environment step
        `step`.
        """
        if self.exceeded:
            remedy = "train again with a smaller --config.optimizer.learning_rate"
            if self._by_environment:
                remedy = "mend the environment, whose rewards and observations must be finite"
            raise UserError(
                f"{self._ended_by}; checkpoint {step} has the parameters before it: {remedy}, or continue with "
                f"--config.nonfinite.policy=skip and --config.nonfinite.most_skips above {self.skipped}"
            )

    def _describe(self, learner: Learner, failure: Failure) -> str:
        """A line on the failure; the host that writes also saves its part of the batch."""
        line = f"update {failure.update} is not finite: {', '.join(failure.names[:_MAX_NAMES])}"
        if len(failure.names) > _MAX_NAMES:
            line += f" and {len(failure.names) - _MAX_NAMES} more"
        if self._workdir is None:
            return line
        arrays = named_leaves(learner.rows_of(failure))
        cause = _cause_in_environment(arrays)
        self._by_environment = cause is not None
        if cause is not None:
            line += f", since {cause}"
        return f"{line}; its batch lies in {nan_policy.write_batch(self._workdir, failure.update, arrays)}"


def _cause_in_environment(arrays: Mapping[str, np.ndarray]) -> str | None:
    """A clause on the first number of a batch that is not finite and came from the environment;
    None if there is none.

    Args:
      arrays: name -> array of a batch. Rewards are [..., T, B] and observations
          [..., T + 1, B, ...], with the same leading axes.
    """
    time_axis = np.ndim(arrays[_REWARD]) - 2
    for name, array in arrays.items():
        if name != _REWARD and not name.startswith(_OBSERVATION):
            continue
        if np.dtype(array.dtype).kind != "f" or np.isfinite(array).all():
            continue
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        field = name.removeprefix(_OBSERVATION)
        return f"the environment gave {array[index]} as {field!r} (row {index[time_axis]} of a rollout)"
    return None
