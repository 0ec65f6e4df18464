"""Data parallelism over devices: the one place that knows how a function of one device runs on several.

A core is a function `core(state, batch) -> (state, output)` of ONE device's part of a batch, which reduces
over `AXIS`. The state is replicated, the batch split. The same core runs under `jax.vmap(core, (None, 0),
axis_name=AXIS)`, which is how tests look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "device"


class DataParallel:
    """Runs cores on a list of devices, each of which holds the state and works on its share of the batch.

    With several processes (jax.distributed), `devices` names those of all processes in the same order
    everywhere; each process hands in its local part of the batch, and reductions go over all of them. Every
    method takes and gives this process's arrays only.
    """

    def __init__(self, devices: Sequence[jax.Device] | None = None):
        """Uses `devices`, by default every device of every process."""
        self.devices = tuple(jax.devices() if devices is None else devices)
        self.local_devices = tuple(d for d in self.devices if d.process_index == jax.process_index())
        if not self.local_devices:
            raise ValueError("no device of this process is among the devices")
        self._mesh = Mesh(np.array(self.local_devices), (AXIS,))

    @property
    def platform(self) -> str:
        """What the devices are: 'cpu', 'gpu' or 'tpu'."""
        return self.devices[0].platform

    @property
    def device_count(self) -> int:
        """How many devices of this process take part: the parts into which it splits its batch."""
        return len(self.local_devices)

    @property
    def global_device_count(self) -> int:
        """How many devices take part over all processes."""
        return len(self.devices)

    def wrap(self, core: Callable[[Any, Any], Any], donate_state: bool = False) -> Callable[[Any, Any], Any]:
        """Returns `fn(state, batch)` that runs `core` on every device.

        Args:
          core: a pure function of one device's state and part of the batch. What it returns must be equal
            on all devices (reduce over `AXIS`): only one device's result is kept.
          donate_state: the state's memory is reused; the state handed in is gone after the call.

        Returns:
          A function of a replicated state and a batch from `put_batch`; its result is replicated.
        """
        program = jax.pmap(
            core,
            axis_name=AXIS,
            in_axes=(None, 0),
            out_axes=None,
            devices=self.devices,
            donate_argnums=(0,) if donate_state else (),
        )
        return in_turn(program) if self.platform == "cpu" and self.device_count > 1 else program

    def replicate(self, tree: Any) -> Any:
        """Places a copy of `tree` on every local device.

        On CPU, too: a program cannot reuse the memory of a numpy array that is donated to it.
        """
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec()), may_alias=False)

    def acting(self, tree: Any) -> Any:
        """What acts of a replicated tree: one device's copy of it."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)

    def put_batch(self, tree: Any, batch_axis: Any) -> Any:
        """Splits this process's batch over its devices and starts the transfers.

        Args:
          tree: pytree of numpy or jax arrays. On CPU a numpy array may be aliased rather than copied: hand
            in arrays that are not written again.
          batch_axis: the axis to split, one for all leaves or a pytree prefix of `tree`.

        Returns:
          The tree with leaves [devices, ...], the split axis shortened to its share.

        Raises:
          ValueError: an axis does not divide evenly over the devices.
        """
        axes = jax.tree.broadcast(batch_axis, tree)
        split = jax.tree.map(lambda x, axis: split_axis(x, axis, self.device_count), tree, axes)
        return jax.device_put(split, NamedSharding(self._mesh, PartitionSpec(AXIS)))

    def put_whole(self, tree: Any, batch_axis: Any) -> Any:
        """As `put_batch`, where every process hands in the batch of all of them: each places its part."""
        processes = sorted({device.process_index for device in self.devices})
        if len(processes) > 1:
            here, axes = processes.index(jax.process_index()), jax.tree.broadcast(batch_axis, tree)
            tree = jax.tree.map(lambda x, axis: split_axis(x, axis, len(processes))[here], tree, axes)
        return self.put_batch(tree, batch_axis)


def in_turn(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`program` with a call that starts only when the one before it has ended.

    For the CPU, which runs all devices' programs with a thread each: a launch that has to wait, because too many of its
    device's programs wait already (32 in jax 0.10), does so in one of these threads, and the program that the other
    devices' reductions wait for never gets it. XLA ends the process then, after a minute.
    """
    running: Any = None

    def call(state: Any, batch: Any) -> Any:
        nonlocal running
        # What has been donated to a later program was waited for by that one.
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(running) if not leaf.is_deleted()])
        running = program(state, batch)
        return running

    return call


def split_axis(x: Any, axis: int, parts: int) -> Any:
    """Cuts `axis` of an array into `parts` equal runs and puts the new axis first.

    Args:
      x: array [..., parts * share, ...].
      axis: the axis to cut.
      parts: number of runs.

    Returns:
      Array [parts, ..., share, ...] of the same kind (numpy or jax).

    Raises:
      ValueError: the axis does not divide evenly.
    """
    size = x.shape[axis]
    if size % parts:
        raise ValueError(f"a batch axis of {size} does not divide over {parts} devices")
    library = jnp if isinstance(x, jax.Array) else np
    shape = (*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :])
    return library.moveaxis(library.reshape(x, shape), axis, 0)
