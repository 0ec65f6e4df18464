"""The share of the devices' peak that an offline training uses: model FLOPs utilisation
(`throughput/mfu`).
"""

from __future__ import annotations

import time
from typing import Any

import jax

from motif_jax.core.devices.flops import gradient_flops, peak_flops
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import Task, shapes_of


class TaskUse:
    """Counts the model FLOPs of a task's steps; on devices whose peak is not known nothing is
    counted or traced.

    A task says what counts (`Task.counted_loss`). Padding counts, as the devices multiply it; what
    a gradient computes again does not.
    """

    def __init__(self, task: Task, parallel: DataParallel) -> None:
        self._task = task
        self._devices = len(parallel.devices)
        computation = task.computation()
        self._peak = None if computation is None else peak_flops(parallel.devices[0], *computation)
        self._flops_by_shape: dict[Any, float] = {}
        self._flops = 0.0
        self._since = time.monotonic()

    def add(self, state: Any, shared: Any, batches: Any, steps: int) -> None:
        """Counts `steps` steps with batches like these, leaves [chunk, ...]."""
        if self._peak is not None:
            self._flops += steps * self._step_flops(state, shared, batches)

    def read(self) -> dict[str, float]:
        """The share since the last call; {} where the peak is not known."""
        if self._peak is None:
            return {}
        now = time.monotonic()
        flops_per_second = self._flops / (now - self._since)
        self._flops = 0.0
        self._since = now
        return {"throughput/mfu": flops_per_second / (self._peak * self._devices)}

    def _step_flops(self, state: Any, shared: Any, batches: Any) -> float:
        """Model FLOPs of one step over all devices, of batches with leaves
        [chunk, micro-batches, ...].
        """
        leaves, structure = jax.tree.flatten(batches)
        key = structure, tuple(leaf.shape[1:] for leaf in leaves)
        if key not in self._flops_by_shape:
            # The loss takes one micro-batch: without the axes of the chunk and of micro-batches.
            shapes = [jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype) for leaf in leaves]
            arguments = (shapes_of(state), shapes_of(shared), jax.tree.unflatten(structure, shapes))
            # The gradient flows to the parameters alone.
            state_flags = _everywhere(False, state)._replace(params=_everywhere(True, state.params))
            differentiated = jax.tree.leaves((state_flags, _everywhere(False, arguments[1:])))
            jaxpr = jax.make_jaxpr(self._task.counted_loss)(*arguments).jaxpr
            micro_batches = leaves[0].shape[1]
            self._flops_by_shape[key] = micro_batches * gradient_flops(jaxpr, differentiated)
        return self._flops_by_shape[key]


def _everywhere(flag: bool, tree: Any) -> Any:
    return jax.tree.map(lambda leaf: flag, tree)
