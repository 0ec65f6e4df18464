"""The learner: batches go to its devices while it works, and its metrics are read one update late."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.algorithms.appo import EXTREMES, TrainState
from motif_jax.algorithms.trajectory import BATCH_AXES, TrajectoryBatch
from motif_jax.runtime.batcher import Batcher, Finished, HostBatch, IntrinsicReturn
from motif_jax.runtime.memory import return_freed_memory
from motif_jax.runtime.meters import Meters
from motif_jax.runtime.parallel import AXIS, DataParallel
from motif_jax.runtime.publishing import Publisher

Update = Callable[..., tuple[TrainState, dict[str, jax.Array]]]
_WAIT_SECONDS = 0.2
# What the update takes on the device, on the host.
_TAKE: dict[Any, Callable[[np.ndarray], Any]] = {None: np.mean, jnp.min: np.min, jnp.max: np.max}


class DeviceBatch(NamedTuple):
    """A batch on the learner's devices, and what the host keeps of it; see `HostBatch`."""

    trajectories: TrajectoryBatch
    num_steps: int
    num_bytes: int
    intrinsic_returns: list[IntrinsicReturn]


def put(batch: HostBatch, parallel: DataParallel) -> DeviceBatch:
    """Starts the transfer of a batch, split over the learner's devices."""
    num_bytes = sum(x.nbytes for x in jax.tree.leaves(batch.trajectories) if isinstance(x, np.ndarray))
    trajectories = parallel.put_batch(batch.trajectories, BATCH_AXES)
    return DeviceBatch(trajectories, batch.num_steps, num_bytes, batch.intrinsic_returns)


class Prefetcher:
    """Assembles batches ahead of the learner and puts them on its devices (a thread calls `work`).

    Args:
      batcher: assembles.
      parallel: the learner's devices.
      waiting: so many batches may wait; then slots are not released, and the actors wait.
      meters: where times go.
    """

    def __init__(self, batcher: Batcher, parallel: DataParallel, waiting: int, meters: Meters) -> None:
        self._batcher, self._parallel, self._meters = batcher, parallel, meters
        self._finished: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[DeviceBatch] = queue.SimpleQueue()
        self._room = threading.Semaphore(waiting)

    def add(self, finished: Finished) -> None:
        """Takes a finished slot; called by inference."""
        self._finished.put(finished)

    def work(self) -> None:
        """Takes a slot, or makes a batch when there are slots for one; returns after a while in any case."""
        if not self._batcher.is_full():
            with self._meters.time("batcher/wait"), contextlib.suppress(queue.Empty):
                self._batcher.add(self._finished.get(timeout=_WAIT_SECONDS))
            return
        with self._meters.time("batcher/blocked"):
            room = self._room.acquire(timeout=_WAIT_SECONDS)
        if room:
            batch = self._batcher.next()
            assert batch is not None
            with self._meters.time("batcher/put"):
                self._ready.put(put(batch, self._parallel))

    def get(self, timeout: float) -> DeviceBatch | None:
        """The oldest batch, None if there is none in time."""
        try:
            batch = self._ready.get(timeout=timeout) if timeout > 0 else self._ready.get_nowait()
        except queue.Empty:
            return None
        self._room.release()
        return batch

    def waiting(self) -> int:
        """Batches that wait."""
        return self._ready.qsize()


class Learner:
    """Holds the training state and updates it.

    Args:
      update: from `appo.make_update`.
      state: the training state, on the host or one device.
      version: updates behind `state`.
      parallel: the devices.
      publisher: gets a copy of the parameters after every update.
      meters: where times go.
    """

    def __init__(
        self,
        update: Update,
        state: TrainState,
        version: int,
        parallel: DataParallel,
        publisher: Publisher,
        meters: Meters,
    ) -> None:
        self._publisher, self._meters = publisher, meters
        self.version = version
        self.state: TrainState = parallel.replicate(state)
        self._names: list[str] = []

        def core(state: TrainState, batch: TrajectoryBatch) -> tuple[TrainState, jax.Array]:
            state, metrics = update(state, batch, axis_name=AXIS)
            # One array instead of dozens: each is a transfer of its own.
            self._names[:] = sorted(metrics)
            return state, jnp.stack([metrics[name].astype(jnp.float32) for name in self._names])

        self._update = parallel.wrap(core, donate_state=True)
        self._running: jax.Array | None = None
        self._launched = 0.0
        self._settled = False
        self._done: jax.Array | None = None
        publisher.publish(version, self.state.params)

    def step(self, batch: DeviceBatch) -> None:
        """Starts an update when the one before it is done."""
        self.settle()
        self._launched = time.perf_counter()
        self.state, self._running = self._update(self.state, batch.trajectories)
        self.version += 1
        self._meters.add("learner/updates", 1)
        self._meters.add("learner/bytes", batch.num_bytes)

    def settle(self) -> None:
        """Waits for the update that runs, if one does, and publishes its parameters.

        The next update is started only then, so that on a device that also acts inference waits for one update at
        most, and so that acting devices never get parameters that are still being computed.
        """
        if self._running is None:
            return
        # An update that is done already ended some time before: then its time is only known to be no longer.
        self._meters.add("learner/late", float(self._running.is_ready()))  # type: ignore[attr-defined]
        jax.block_until_ready(self._running)
        self._meters.add("learner/update", time.perf_counter() - self._launched)
        self._publisher.publish(self.version, self.state.params)
        self._done, self._running = self._running, None
        if not self._settled:
            self._settled = True
            return_freed_memory()  # the compiler's

    def metrics(self) -> dict[str, float]:
        """Metrics of the newest update that is done and was not asked for yet; does not wait for a running one."""
        if self._done is None:
            return {}
        values, self._done = np.asarray(self._done), None
        return dict(zip(self._names, values.tolist(), strict=True))


class Averages:
    """Means of metrics between two rows of the log, and extremes of those that are extremes (`appo.EXTREMES`)."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, metrics: dict[str, float]) -> None:
        """Adds the metrics of one update; an empty dictionary is none."""
        for name, value in metrics.items():
            self._values.setdefault(name, []).append(value)

    def read(self) -> dict[str, float]:
        """The means and extremes since the last call."""
        values, self._values = self._values, {}
        return {name: _TAKE[EXTREMES.get(name)](np.asarray(found)).item() for name, found in values.items()}
