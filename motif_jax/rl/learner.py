"""The learner: runs an algorithm's update on its devices, publishes the parameters and reads the
metrics.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices.memory import return_freed_memory
from motif_jax.core.devices.meters import Meters
from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.interruption import Patience
from motif_jax.core.training.finite import all_finite, keep_if
from motif_jax.rl.algorithms.algorithm import StateFields
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.algorithms.update import EXTREMES
from motif_jax.rl.batcher import Batch
from motif_jax.rl.publishing import Publisher

Update = Callable[..., tuple[Any, dict[str, jax.Array]]]
# The host's reduction for each reduction of the update on the device; None for metrics that are
# averaged.
_REDUCTIONS: dict[Any, Callable[[np.ndarray], Any]] = {
    None: np.mean,
    jnp.min: np.min,
    jnp.max: np.max,
}
# A finite update has finite metrics in these groups; others may be means over no rows.
_FINITE_GROUPS = ("loss/", "optimizer/", "reward/", "value/")


class StateUse(NamedTuple):
    """What a learner does with the parts of a training state.

    Attributes:
      fields: see `Algorithm.state_fields`.
      shares_frozen: publishes the frozen part of the state without a copy; allowed only where
          nobody acts during updates.
      published: takes from a state the part that is published.
    """

    fields: StateFields
    shares_frozen: bool = False
    published: Callable[[Any], Any] = operator.attrgetter("params")


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
      update: of an algorithm, see `Algorithm.make_update`.

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
        update: Update,
        state: Any,
        parallel: DataParallel,
        publisher: Publisher,
        meters: Meters,
        use: StateUse,
    ) -> None:
        self._use = use
        self._publisher = publisher
        self._parallel = parallel
        self._meters = meters
        self.version = int(state.step)
        self.state: Any = parallel.replicate(state)
        self.failures: list[Failure] = []
        self.patience: Patience | None = None
        # in the order of the device's array; known once `core` is traced
        self._metric_names: list[str] = []

        def core(state: Any, batch: TrajectoryBatch) -> tuple[Any, jax.Array]:
            # Behind the barrier, the check for finite numbers cannot change the bits of an update.
            new, metrics = jax.lax.optimization_barrier(update(state, batch, axis_name=AXIS))

            # Constant parts and the memory are not checked, and `keep_if` would copy them.
            memory = ("memory",) if use.fields.memory else ()
            unchecked = dict.fromkeys((*use.fields.constant, *memory), ())
            new_checked = new._replace(**unchecked)
            is_finite = all_finite(new_checked)
            watched = [value for name, value in metrics.items() if name.startswith(_FINITE_GROUPS)]
            next_state = keep_if(
                is_finite & all_finite(watched), new_checked, state._replace(**unchecked)
            )
            next_state = next_state._replace(**{name: getattr(state, name) for name in unchecked})
            counts = {name: getattr(new, name) for name in (*use.fields.counts, *memory)}

            # One array, so one transfer, instead of dozens. The names are noted at the trace.
            self._metric_names[:] = sorted(metrics)
            values = [is_finite, *(metrics[name] for name in self._metric_names)]
            return next_state._replace(**counts), jnp.stack(
                [value.astype(jnp.float32) for value in values]
            )

        self.update_program = parallel.wrap(core, donate_state=True)
        # The running update's metrics, number and batch, and those of the newest finished one.
        self._running: tuple[jax.Array, int, Batch] | None = None
        self._done: tuple[jax.Array, int, Batch] | None = None
        self._launched_at = 0.0
        self._has_finished_update = False
        # Inference compiles and acts with these before the first update.
        self.publish()

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
        params = self._parallel.acting(self._use.published(self.state))
        if self._use.shares_frozen:
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
