"""Models that do not fit one device: parameters and optimiser split over a mesh of devices.

Cores are those of `core.devices.parallel`, and `Sharded` replaces `DataParallel`. A core sees the
whole batch as on one device; the compiler splits arrays and work (Xu et al. 2021).

The mesh has three axes. Batches are split over `data` and `fsdp`. Parameters, gradients and
optimiser states are split, by a table of their names, over `fsdp` (Zhao et al. 2023: each device
holds a part and gathers a layer while computing it) and over `tensor` (Shoeybi et al. 2019: each
device computes its heads and its part of the feed-forward width). Devices along `data` hold copies.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from motif_jax.core import config as checks
from motif_jax.core.devices.parallel import AXIS, DataParallel, in_turn
from motif_jax.core.errors import UserError
from motif_jax.core.sections import Sharding
from motif_jax.core.training.config import DatasetConfig

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"
AXES = (DATA, FSDP, TENSOR)
# Mesh axes that a batch's rows are split over.
BATCH = (DATA, FSDP)
_QKV = ("query", "key", "value")

# A mesh axis or None for each axis of the parameters whose path ends like a pattern. The first that
# matches counts; parameters without one (norms, small biases) are whole on every device.
TABLE: dict[str, tuple[str | None, ...]] = {
    **{f"*attention/{part}/kernel": (FSDP, TENSOR) for part in _QKV},  # [width, heads * head_width]
    "*attention/output/kernel": (TENSOR, FSDP),
    **{f"attention/{part}/bias": (TENSOR,) for part in _QKV},
    "feed_forward/activated/kernel": (FSDP, TENSOR),  # [width, feed_forward]
    "feed_forward/activated/bias": (TENSOR,),
    "feed_forward/factor/kernel": (FSDP, TENSOR),
    "feed_forward/down/kernel": (TENSOR, FSDP),
    "embedding": (TENSOR, FSDP),  # [vocabulary, width]
    "position_embedding": (None, FSDP),
    "relative_bias": (None, TENSOR),  # [buckets, heads]
    "head/kernel": (FSDP, TENSOR),
    # `heads.Heads`: Q of every token is as large as the model's own head.
    "hidden_*/kernel": (FSDP, TENSOR),
    "output/kernel": (FSDP, TENSOR),
}


def check_config(config: DatasetConfig, available: int, hosts: int = 1) -> None:
    """Raises UserError where `num_devices`, `sharding`, `batch_size` and `accumulate` do not fit
    the devices.

    Args:
      available: devices of each host.
      hosts: number of hosts.
    """
    devices = config.num_devices or available
    sizes = config.sharding or Sharding()
    checks.require(
        devices <= available, "num_devices", devices, f"at most the {available} of this machine"
    )
    allowed = f"sizes whose product divides the {devices} devices"
    checks.require(
        devices % (sizes.fsdp * sizes.tensor) == 0, "sharding", dataclasses.asdict(sizes), allowed
    )
    # Devices along `tensor` work on the same rows.
    parts = hosts * devices // sizes.tensor
    divisor = parts * config.accumulate
    allowed = (
        f"a multiple of {divisor}: {config.accumulate} micro-batches on each of {parts} devices"
    )
    checks.require(config.batch_size % divisor == 0, "batch_size", config.batch_size, allowed)


def training_devices(count: int | None) -> list[jax.Device]:
    """The first `count` devices of every host; None: all."""
    hosts = range(jax.process_count())
    return [device for host in hosts for device in jax.local_devices(process_index=host)[:count]]


def mesh_of(sizes: Mapping[str, int], devices: Sequence[jax.Device]) -> Mesh:
    """A mesh over `devices` with `sizes` along `AXES`; those along `tensor`, which communicate
    most, are neighbours.
    """
    return Mesh(np.array(devices).reshape([sizes[axis] for axis in AXES]), AXES)


def spec_of(path: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]) -> PartitionSpec:
    """The partition of one array over a mesh.

    An axis is not split where its mesh axis does not divide it (GPT-2's 50,257 tokens:
    `vocabulary.extend` adds rows).

    Args:
      path: names of the array in the tree of parameters; only the end counts.
      shape: of the array.
      sizes: mesh axis -> number of devices along it.
    """
    # The keys of low-rank additions and quantised kernels are paths themselves.
    names = "/".join(path).split("/")
    if names[-1] in ("codes", "scales"):  # split like the kernel that they encode
        names[-1] = "kernel"
    axes = _table_axes("/" + "/".join(names))
    if len(axes) != len(shape):
        return PartitionSpec()
    divisible = (
        axis if axis and size % sizes[axis] == 0 else None for axis, size in zip(axes, shape)
    )
    return PartitionSpec(*divisible)


def _table_axes(full_path: str) -> tuple[str | None, ...]:
    """The entry of `TABLE` for a parameter; () without one."""
    for pattern, axes in TABLE.items():
        if fnmatchcase(full_path, f"*/{pattern}"):
            return axes
    return ()


def path_names(path: Sequence[Any]) -> tuple[str, ...]:
    """The names on a jax key path."""
    return tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)


class Sharded(DataParallel):
    """Runs cores on a mesh of devices over which the state is split.

    `sizes` are devices along `data`, `fsdp` and `tensor`; their product is the number of devices.
    Raises UserError: `tensor` is wider than a host.
    """

    def __init__(self, sizes: Mapping[str, int], devices: Sequence[jax.Device]) -> None:
        super().__init__(devices)
        self.mesh = mesh_of(sizes, self.devices)
        self._sizes = dict(sizes)
        self._parts = math.prod(sizes[axis] for axis in BATCH)
        self._hosts = len({d.process_index for d in self.devices})
        if self._parts % self._hosts:
            raise UserError(
                f"sharding: a batch in {self._parts} parts (data x fsdp) does not divide over {self._hosts} hosts, each of which reads "
                "its own"
            )

    @property
    def device_count(self) -> int:
        return self._parts * len(self.local_devices) // len(self.devices)

    @property
    def global_device_count(self) -> int:
        return self._parts

    def shardings(self, tree: Any) -> Any:
        """How a state (arrays or shapes) is split: a tree of `NamedSharding`."""

        def leaf_sharding(path: Sequence[Any], leaf: Any) -> NamedSharding:
            return NamedSharding(self.mesh, spec_of(path_names(path), np.shape(leaf), self._sizes))

        return jax.tree_util.tree_map_with_path(leaf_sharding, tree)

    def wrap(
        self, core: Callable[[Any, Any], Any], donate_state: bool = False
    ) -> Callable[[Any, Any], Any]:
        """As `DataParallel.wrap`; the returned state is split as the one passed in."""

        # How a state is split is known with the first one. Each way has a program of its own.
        @functools.cache
        def compiled(structure: Any, shardings: tuple[NamedSharding, ...]) -> Any:
            return self.program(core, jax.tree.unflatten(structure, shardings), donate_state)

        def run(state: Any, batch: Any) -> Any:
            leaves, structure = jax.tree.flatten(state)
            program = compiled(structure, tuple(leaf.sharding for leaf in leaves))
            return program(state, batch)

        return in_turn(run) if self.platform == "cpu" and len(self.local_devices) > 1 else run

    def program(
        self, core: Callable[[Any, Any], Any], shardings: Any, donate_state: bool = False
    ) -> jax.stages.Wrapped:
        """The jitted program of a core for a state split by `shardings`; it can be lowered for
        shapes, too.
        """

        def on_whole_batch(state: Any, batch: Any) -> Any:
            # One part, the whole batch: reductions over `AXIS` do nothing.
            results = jax.vmap(core, (None, 0), axis_name=AXIS)(state, batch)
            results = jax.tree.map(lambda leaf: leaf[0], results)
            # A core that evaluates returns no state.
            state_structure: Any = jax.tree.structure(shardings)
            if not isinstance(results, tuple) or jax.tree.structure(results[0]) != state_structure:
                return results
            new_state, *outputs = results
            # Split as it came in: so it can take the donated memory, and be the next call's state.
            new_state = jax.lax.with_sharding_constraint(new_state, shardings)
            # Losses and metrics are small, so every process gets all of them.
            everywhere = NamedSharding(self.mesh, PartitionSpec())
            return (new_state, *jax.lax.with_sharding_constraint(tuple(outputs), everywhere))

        return jax.jit(on_whole_batch, donate_argnums=(0,) if donate_state else ())

    def replicate(self, tree: Any) -> Any:
        """Places `tree` on the devices, each array split by its path; every process passes the
        whole tree.
        """

        def put(leaf: Any, sharding: NamedSharding) -> jax.Array:
            if isinstance(leaf, jax.Array):  # from device to device, as from another mesh
                return jax.device_put(leaf, sharding)
            array = np.asarray(leaf)
            # Part by part, so that no device holds the whole.
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(put, tree, self.shardings(tree))

    def replicate_freeing(self, trees: list[Any]) -> Any:
        return self.replicate(trees.pop())

    @functools.cached_property
    def _own_mesh(self) -> Mesh:
        """The mesh of this process's devices alone."""
        if self._hosts == 1:
            return self.mesh
        # `check_config` keeps fsdp x tensor within a host, so hosts divide the axis `data` alone.
        data = self._sizes["data"] // self._hosts
        return mesh_of({**self._sizes, "data": data}, self.local_devices)

    @property
    def everywhere(self) -> NamedSharding:
        """Replicates over all devices of this process; inputs of acting with a split model need
        it.
        """
        return NamedSharding(self._own_mesh, PartitionSpec())

    def acting(self, tree: Any) -> Any:
        """A state's whole tree, split as it is, on this process's devices alone."""
        if self._hosts == 1:
            return tree

        def on_own_mesh(leaf: jax.Array) -> jax.Array:
            # Along `data` devices hold copies, so the parts of one host make the whole tree.
            sharding = NamedSharding(self._own_mesh, leaf.sharding.spec)  # type: ignore[attr-defined]
            parts = [shard.data for shard in leaf.addressable_shards]
            return jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts)

        return jax.tree.map(on_own_mesh, tree)

    def put_batch(self, tree: Any, batch_axis: Any) -> Any:
        """As `DataParallel.put_batch`, but leaves are [1, ...]: the split axis keeps its length, a
        multiple of the parts.
        """

        def put(x: Any, axis: int) -> jax.Array:
            size = x.shape[axis]
            parts = self.device_count
            if size % parts:
                raise ValueError(f"a batch axis of {size} does not divide over {parts} parts")
            spec = PartitionSpec(None, *[None] * axis, BATCH)
            return jax.make_array_from_process_local_data(
                NamedSharding(self.mesh, spec), np.asarray(x)[None]
            )

        return jax.tree.map(put, tree, jax.tree.broadcast(batch_axis, tree))

    def own_part(self, tree: Any) -> Any:
        """As `DataParallel.own_part`."""
        return jax.tree.map(_own_rows, tree)


def _own_rows(array: jax.Array) -> np.ndarray:
    """The rows of an array of `Sharded.put_batch` that this process has; other processes hold the
    rest, which cannot be read here.
    """
    axis = array.sharding.spec.index(BATCH)  # type: ignore[attr-defined]
    parts = {}
    for shard in array.addressable_shards:
        # Devices along the other axes of the mesh have copies.
        parts[shard.index[axis].start or 0] = np.asarray(shard.data)
    return np.concatenate([parts[start] for start in sorted(parts)], axis=axis)
