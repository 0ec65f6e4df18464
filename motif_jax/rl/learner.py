"""The learner: batches move to its devices during an update, and metrics reach the host with the update's end."""

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
from motif_jax.core.training.finite import all_finite, keep_if
from motif_jax.rl import agent_checkpoints
from motif_jax.rl.algorithms.trajectory import TrajectoryBatch
from motif_jax.rl.algorithms.update import EXTREMES
from motif_jax.rl.batcher import Batch
from motif_jax.rl.publishing import Publisher

Update = Callable[..., tuple[Any, dict[str, jax.Array]]]
# The host's reduction for each reduction of the update on the device.
_TAKE: dict[Any, Callable[[np.ndarray], Any]] = {None: np.mean, jnp.min: np.min, jnp.max: np.max}
# A finite update has finite metrics in these groups; others may be means over no rows.
_FINITE = ("loss/", "optimizer/", "reward/", "value/")
# Fields of a training state that a skipped update changes, too: counts, and the memory of played steps, which is too large to
# be copied.
_COUNTS, _MEMORY = ("step", "env_steps"), "memory"


class Failure(NamedTuple):
    """A skipped update: its number from 0, the names of what was not finite, and its batch."""

    update: int
    what: list[str]
    batch: Batch


class Learner:
    """Holds the training state and updates it. An update that is not finite leaves the state as it was, and joins `failures`.

    With `lends` the frozen part of the state is published without a copy: only where nobody acts during updates. `published` takes
    the part of a state that is published; `version` is the number of updates in the state.
    """

    def __init__(
        self,
        update: Update,
        state: Any,
        parallel: DataParallel,
        publisher: Publisher,
        meters: Meters,
        lends: bool = False,
        published: Callable[[Any], Any] = operator.attrgetter("params"),
    ) -> None:
        self._lends, self._published = lends, published
        self._publisher, self._parallel, self._meters = publisher, parallel, meters
        self.version = int(state.step)
        self.state: Any = parallel.replicate(state)
        self.failures: list[Failure] = []
        self._names: list[str] = []

        def core(state: Any, batch: TrajectoryBatch) -> tuple[Any, jax.Array]:
            # Behind the barrier, the check for finite numbers cannot change the bits of an update.
            new, metrics = jax.lax.optimization_barrier(update(state, batch, axis_name=AXIS))
            # Constant parts are not checked.
            fixed = {name: () for name in (*agent_checkpoints.NOT_KEPT, _MEMORY) if name in new._fields}
            finite = all_finite(new._replace(**fixed))
            watched = [value for name, value in metrics.items() if name.startswith(_FINITE)]
            kept = keep_if(finite & all_finite(watched), new._replace(**fixed), state._replace(**fixed))
            kept = kept._replace(**{name: getattr(state, name) for name in fixed})
            counts = {name: getattr(new, name) for name in (*_COUNTS, _MEMORY) if name in new._fields}
            # One array, so one transfer, instead of dozens.
            self._names[:] = sorted(metrics)
            values = [finite, *(metrics[name] for name in self._names)]
            return kept._replace(**counts), jnp.stack([value.astype(jnp.float32) for value in values])

        self._update = parallel.wrap(core, donate_state=True)
        # The running update's metrics, number and batch, and those of the newest finished one.
        self._running: tuple[jax.Array, int, Batch] | None = None
        self._done: tuple[jax.Array, int, Batch] | None = None
        self._launched = 0.0
        self._settled = False
        self._publish()

    def step(self, batch: Batch) -> None:
        self.settle()
        self._launched = time.perf_counter()
        self.state, metrics = self._update(self.state, batch.trajectories)
        # The copy to the host follows the update at once, since the devices idle until the next update.
        metrics.copy_to_host_async()
        self._running = metrics, self.version, batch
        self.version += 1
        self._meters.add("learner/updates", 1)
        self._meters.add("learner/bytes", batch.num_bytes)

    def settle(self) -> None:
        """Waits for the running update, and publishes its parameters before the next: inference waits for one at most."""
        if self._running is None:
            return
        metrics = self._running[0]
        # If the update has already ended, this time is only an upper bound.
        self._meters.add("learner/late", float(metrics.is_ready()))  # type: ignore[attr-defined]
        jax.block_until_ready(metrics)
        self._meters.add("learner/update", time.perf_counter() - self._launched)
        self._publish()
        self._done, self._running = self._running, None
        if not self._settled:
            self._settled = True
            return_freed_memory()  # the compiler's

    def _publish(self) -> None:
        lent = [self._parallel.acting(self.state.frozen)] if self._lends else []
        self._publisher.publish(self.version, self._parallel.acting(self._published(self.state)), *lent)

    def metrics(self) -> dict[str, float]:
        """Metrics of the newest finished update, once for each update; {} and a failure where it is not finite."""
        if self._done is None:
            return {}
        (running, update, batch), self._done = self._done, None
        finite, *values = np.asarray(running).tolist()
        metrics = dict(zip(self._names, values, strict=True))
        what = [name for name in metrics if name.startswith(_FINITE) and not math.isfinite(metrics[name])]
        what += [] if finite else ["the parameters that it gives"]
        if not what:
            return metrics
        self.failures.append(Failure(update, what, batch))
        return {}


class Averages:
    """Means of metrics between two rows of the log, and the extremes of `update.EXTREMES`."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._values.setdefault(name, []).append(value)

    def read(self) -> dict[str, float]:
        values, self._values = self._values, {}
        return {name: _TAKE[EXTREMES.get(name)](np.asarray(found)).item() for name, found in values.items()}
