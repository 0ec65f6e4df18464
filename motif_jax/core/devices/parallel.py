"""Data parallelism over devices.

A core is a function `core(state, batch) -> (state, output)` of ONE device's part of a batch, which
reduces over `AXIS`. The state is replicated, the batch split. Tests run the same core under
`jax.vmap(core, (None, 0), axis_name=AXIS)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "device"


def cpu_device() -> jax.Device | None:
    """This host's CPU as a device, None where JAX_PLATFORMS leaves it out."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


class DataParallel:
    """Runs cores on several devices, each with a copy of the state and its share of the batch.

    With several processes (jax.distributed), `devices` lists those of all processes in the same
    order everywhere. Each process passes and receives its local part only; reductions go over all
    of them.
    """

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.devices = tuple(devices)
        self.local_devices = tuple(
            d for d in self.devices if d.process_index == jax.process_index()
        )
        self._mesh = Mesh(np.array(self.local_devices), (AXIS,))

    @property
    def platform(self) -> str:
        return self.devices[0].platform

    @property
    def device_count(self) -> int:
        """Devices of this process: the parts into which it splits its batch."""
        return len(self.local_devices)

    @property
    def global_device_count(self) -> int:
        """Devices of all processes: the parts into which the global batch is split."""
        return len(self.devices)

    def wrap(
        self, core: Callable[[Any, Any], Any], donate_state: bool = False
    ) -> Callable[[Any, Any], Any]:
        """Returns `fn(state, batch)` that runs `core` on every device, for a replicated state and a
        batch of `put_batch`.

        The core's results must be equal on all devices (reduce over `AXIS`): one device's are kept.
        With `donate_state` the state passed in is gone after the call.
        """
        # The only pmap of the package. With `out_axes=None` values that differ between devices come
        # back without an error, as those of one of them.
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
        """Places a copy of `tree` on every local device."""
        if self.platform == "cpu":
            # `device_put` shares a numpy array's memory even where it is told not to, and a program
            # cannot reuse it when it is donated (https://github.com/jax-ml/jax/issues/37830).
            tree = jax.tree.map(
                lambda leaf: jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf, tree
            )
        # A program that takes the state as a donation must not overwrite arrays of the caller.
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec()), may_alias=False)

    def replicate_freeing(self, trees: list[Any]) -> Any:
        """As `replicate`, of the only item of a list: takes it out, and frees its host arrays one
        by one.
        """
        leaves, structure = jax.tree.flatten(trees.pop())
        # Turned around, since `pop` takes from the end: each host array goes once its copy is
        # placed.
        leaves.reverse()
        replicated: list[Any] = []
        while leaves:
            replicated.append(self.replicate(leaves.pop()))
        return jax.tree.unflatten(structure, replicated)

    def acting(self, tree: Any) -> Any:
        """One device's copy of a replicated tree, for acting."""
        # No copy: a later update that takes the state as a donation frees these arrays, too.
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)

    def put_batch(self, tree: Any, batch_axis: Any) -> Any:
        """Splits this process's batch over its devices and starts the transfers; leaves become
        [devices, ...].

        Args:
          tree: numpy or jax arrays. Do not write to numpy arrays afterwards: on CPU they may be
              aliased.
          batch_axis: the axis to split, one for all leaves or a pytree prefix of `tree`; it is
              shortened to a device's share.

        Raises ValueError: an axis does not divide evenly over the devices.
        """
        axes = jax.tree.broadcast(batch_axis, tree)
        split = jax.tree.map(lambda x, axis: split_axis(x, axis, self.device_count), tree, axes)
        return jax.device_put(split, NamedSharding(self._mesh, PartitionSpec(AXIS)))

    def own_part(self, tree: Any) -> Any:
        """What this process has of a batch of `put_batch`, as numpy arrays."""
        return jax.device_get(tree)

    def put_whole(self, tree: Any, batch_axis: Any) -> Any:
        """As `put_batch`, but every process passes the global batch and places its own part."""
        processes = sorted({device.process_index for device in self.devices})
        if len(processes) > 1:
            part = processes.index(jax.process_index())
            axes = jax.tree.broadcast(batch_axis, tree)
            tree = jax.tree.map(
                lambda x, axis: split_axis(x, axis, len(processes))[part], tree, axes
            )
        return self.put_batch(tree, batch_axis)


def in_turn(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Makes each call of `program` wait for the end of the one before.

    A launch blocks a CPU device's thread when too many of its programs wait (32 in jax 0.10). The
    program that the other devices' reductions wait for then never starts, and XLA ends the process
    after a minute.
    """
    running: Any = None

    def call(state: Any, batch: Any) -> Any:
        nonlocal running
        # Deleted leaves were donated to a later program, which waited for them.
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(running) if not leaf.is_deleted()])
        running = program(state, batch)
        return running

    return call


def split_axis(x: Any, axis: int, parts: int) -> Any:
    """Cuts `axis` of an array [..., parts * share, ...] into equal runs: [parts, ..., share, ...]
    (numpy or jax).
    """
    size = x.shape[axis]
    if size % parts:
        raise ValueError(f"a batch axis of {size} does not divide over {parts} devices")
    library = jnp if isinstance(x, jax.Array) else np
    shape = (*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :])
    return library.moveaxis(library.reshape(x, shape), axis, 0)
