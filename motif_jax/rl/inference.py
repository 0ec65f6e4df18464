"""Batched inference: reads observations of waiting groups from their slots and writes actions back.

It acts with the newest parameters that the learner has published (`Publisher`). Recurrent states
stay on the device: one table by environment, and one with the states before row 0 of every slot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices import compiled_programs
from motif_jax.core.devices.meters import Meters
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.acting_program import (
    MAX_COUNTER,
    ActingState,
    CallInput,
    CallLayout,
    CallProgram,
    bucket_sizes,
    gather_rows,
    unpack_choice,
)
from motif_jax.rl.actors.rollouts import Ready, Rollouts
from motif_jax.rl.actors.slots import Slots

READY_SECONDS = 0.2  # that a call waits for groups
# a device, or several that hold an array together
Placement: TypeAlias = jax.Device | jax.sharding.Sharding


class Published(NamedTuple):
    """Parameters, prepared for acting, and the number of updates before them."""

    version: int
    params: Any


class Publisher:
    """Holds for every acting device its own copy of the newest parameters, made by the learner
    between two updates.

    A reader gets one complete version, never the learner's own arrays, whose memory the next update
    takes over.

    Args:
      devices: those that act; for a split model its sharding alone.
      prepare: turns parameters into acting parameters (`PolicyNetwork.prepare`).
      frozen: parameters that never change; they are copied once.

    Attributes:
      copy_program: the compiled copy of the learner's parameters, prepared for acting.
    """

    def __init__(
        self,
        devices: Sequence[Placement],
        prepare: Callable[[Any], Any],
        frozen: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._devices = devices
        self._frozen = {device: jax.device_put(dict(frozen), device) for device in devices}
        self.copy_program = jax.jit(lambda params: prepare(jax.tree.map(jnp.copy, params)))
        self._published: dict[Placement, Published] = {}

    def publish(
        self, version: int, params: Any, frozen: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Starts copying `params` to all acting devices. `frozen` is not copied: nobody may act
        while updates run.
        """
        copy = self.copy_program(params)
        for device in self._devices:
            # An array that is split over devices stays split.
            acting = jax.device_put(copy, device) if isinstance(device, jax.Device) else copy
            frozen_here = self._frozen[device] or frozen
            if frozen_here:
                acting = {**acting, **frozen_here}
            # One assignment, which readers in other threads see whole or not at all: no lock.
            self._published[device] = Published(version, acting)

    def newest(self, device: Placement) -> Published:
        """The newest parameters on an acting device."""
        return self._published[device]


class SlotRows(NamedTuple):
    """The arrays of `Slots` by row: [slots * (T + 1), envs]; observations and actions
    [slots * (T + 1), numbers].
    """

    observation: dict[str, np.ndarray]
    first: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    version: np.ndarray

    @classmethod
    def of(cls, slots: Slots, fields: Sequence[str]) -> SlotRows:
        count = slots.layout.num_slots * (slots.layout.rollout + 1)
        observation = {name: slots.observation[name].reshape(count, -1) for name in fields}
        names = ("first", "action", "behaviour_log_prob", "behaviour_value", "parameter_version")
        return cls(observation, *(slots.arrays[name].reshape(count, -1) for name in names))

    def copy(
        self, rows: np.ndarray, first: np.ndarray, observation: Mapping[str, np.ndarray]
    ) -> None:
        """Copies the rows with numbers `rows` into `first` and `observation`."""
        # `take` writes straight into `out` only where it need not check the indices.
        np.take(self.first, rows, axis=0, out=first, mode="clip")
        for name, target in observation.items():
            source = self.observation[name]
            if source.dtype == target.dtype:
                np.take(source, rows, axis=0, out=target, mode="clip")
            else:  # 64 bits, which jax reads as 32
                target[...] = source[rows]

    def write(
        self,
        rows: np.ndarray,
        action: np.ndarray,
        log_prob: np.ndarray,
        value: np.ndarray,
        version: int,
    ) -> None:
        """Writes a choice, [len(rows), envs, ...] each, to the rows with numbers `rows`."""
        self.action[rows] = action.reshape(len(rows), -1)
        self.log_prob[rows] = log_prob
        self.value[rows] = value
        self.version[rows] = version


class _Running(NamedTuple):
    """A launched call."""

    ready: Sequence[Ready]
    rows: np.ndarray  # int32 [groups], rows of `SlotRows`
    version: int  # of the parameters
    choice: jax.Array  # the packed output
    program: CallProgram
    input: CallInput
    host_seconds: float  # that the launching thread has spent on it
    launch_seconds: float  # part of `host_seconds`


class Inference:
    """Chooses actions for one set of actors on one device; `counter` is the number of its next draw
    with `key`.
    """

    def __init__(
        self,
        network: PolicyNetwork,
        actors: Rollouts,
        publisher: Publisher,
        device: Placement,
        key: jax.Array,
        meters: Meters,
        counter: int = 0,
    ) -> None:
        self._network = network
        self._actors = actors
        self._publisher = publisher
        self._device = device
        self._meters = meters
        self.counter = counter
        self._key = jax.device_put(key, device)

        config = actors.config
        slots = actors.slots
        self._envs = config.envs_per_group
        self._groups = config.groups
        self._num_slots = slots.layout.num_slots
        self._slot_rows = slots.layout.rollout + 1
        self._action = network.spec.action
        self._fields = {name: network.spec.observation[name] for name in network.fields}
        self._rows = SlotRows.of(slots, network.fields)

        table = jax.device_put(network.initial_state(config.num_envs + 1), device)
        slot_states = jax.device_put(
            network.initial_state(self._num_slots * self._envs + 1), device
        )
        self._state = ActingState(table, slot_states, self._counter_on_device())
        # A launch replaces the state while the batcher's thread may read it.
        self._state_lock = threading.Lock()

        # Programs by number of groups and shapes of the cropped fields.
        self._programs: dict[tuple[Any, ...], CallProgram] = {}
        self.buckets = bucket_sizes(config.groups)
        self._held: list[Ready] = []  # groups that have to wait
        self._running: _Running | None = None

    @property
    def on_gpu(self) -> bool:
        return isinstance(self._device, jax.Device) and self._device.platform == "gpu"

    def params(self) -> Any:
        """The newest acting parameters."""
        return self._publisher.newest(self._device).params

    def compile(self) -> None:
        """Compiles the programs of all buckets in parallel threads, and runs them on rows that
        belong to no environment.
        """
        params = self.params()
        inputs = [self._padding(bucket) for bucket in self.buckets]
        compiled_programs.compile_together(
            [
                program.run.lower(params, self._state, self._key, padding.packed)
                for program, padding in inputs
            ]
        )
        for program, padding in inputs:
            # The program takes over the memory of its state.
            state = jax.tree.map(jnp.copy, self._state)
            choice, _ = program.run(params, state, self._key, padding.packed)
            jax.block_until_ready(choice)
            program.give_back(padding)

    def _padding(self, bucket: int) -> tuple[CallProgram, CallInput]:
        """The smallest program of a bucket, with which a run begins, and an input of padding."""
        program = self._program(bucket)
        padding = program.take_input()
        call = padding.call
        call.groups[:] = self._groups
        call.slots[:] = self._num_slots
        call.first[:] = 1
        # Networks crop what all rows lack: zeros give the smallest program.
        for field in call.observation.values():
            field[...] = 0
        return self._cropped(bucket, program, padding)

    def _counter_on_device(self) -> jax.Array:
        return jax.device_put(jnp.array(self.counter & MAX_COUNTER, jnp.int32), self._device)

    def serve(
        self, timeout: float = READY_SECONDS, hold: Callable[[Ready], bool] | None = None
    ) -> int:
        """Chooses the actions of groups, without those that `hold` is True for; returns how many
        environments were served.
        """
        ready = self._take_ready(timeout, hold)
        if ready:
            self._finish(self.launch(ready), ready)
        return len(ready) * self._envs

    def serve_ahead(self, timeout: float = READY_SECONDS) -> None:
        """As `serve`, but launches the next call before it reads the last one's choice: the device
        computes while the host works.
        """
        before = self._running
        # With a call in flight nothing waits for groups: those of that call want their actions.
        ready = self._take_ready(timeout if before is None else 0.0, None)
        self._running = self.launch(ready) if ready else None
        if before is not None:
            # The process of a group may have died since the launch: its new one waits for another
            # action.
            restarted = self._actors.restarted_groups
            self._finish(before, [ready for ready in before.ready if ready.group not in restarted])

    def _take_ready(self, timeout: float, hold: Callable[[Ready], bool] | None) -> list[Ready]:
        """Groups that wait for actions, without those that `hold` is True for, which join
        `_held`.
        """
        with self._meters.time("inference/wait"):
            # Held groups are served as soon as possible, without a wait for others.
            held = self._held
            is_one_due = any(hold is None or not hold(ready) for ready in held)
            new = list(self._actors.ready(0 if is_one_due else timeout))
            # The process of a held group may have died: the group then plays another slot.
            restarted = self._actors.restarted_groups
            waiting = [ready for ready in held if ready.group not in restarted] + new
        self._held = [] if hold is None else [ready for ready in waiting if hold(ready)]
        return [ready for ready in waiting if ready not in self._held]

    def initial_states(self, rows: np.ndarray) -> Any:
        """The recurrent states, [B, ...], before row 0 of finished slots; `rows` int32 [B]:
        slot * envs_per_group + column.
        """
        with self._state_lock:
            return gather_rows(self._state.slot_states, rows)

    def _program(
        self, bucket: int, shapes: tuple[tuple[int, ...], ...] | None = None
    ) -> CallProgram:
        """The program for `bucket` groups, with fields cropped to `shapes`; None: whole fields."""
        program = self._programs.get((bucket, shapes))
        if program is None:
            fields = {}
            for number, (name, field) in enumerate(self._fields.items()):
                shape = field.shape if shapes is None else shapes[number]
                # As the device holds it: 64 bits become 32.
                fields[name] = (shape, jax.dtypes.canonicalize_dtype(field.dtype).name)
            program = CallProgram(self._network, CallLayout.of(bucket, self._envs, fields))
            self._programs[bucket, shapes] = program
        return program

    def _cropped(
        self, bucket: int, program: CallProgram, filled: CallInput
    ) -> tuple[CallProgram, CallInput]:
        """The program and input without padding that all rows share, see `PolicyNetwork.cropped`;
        usually those passed in.
        """
        observation = self._network.cropped(filled.call.observation)
        shapes = tuple(observation[name].shape[1:] for name in self._fields)
        if shapes == tuple(tuple(field.shape) for field in self._fields.values()):
            return program, filled
        smaller_program = self._program(bucket, shapes)
        cropped = smaller_program.take_input()
        cropped.call.groups[...] = filled.call.groups
        cropped.call.slots[...] = filled.call.slots
        cropped.call.first[...] = filled.call.first
        for name, target in cropped.call.observation.items():
            target[...] = observation[name]
        program.give_back(filled)
        return smaller_program, cropped

    def launch(self, ready: Sequence[Ready]) -> _Running:
        """Copies the groups' rows into an input and launches the program."""
        start = time.perf_counter()
        count = len(ready)
        bucket = next(size for size in self.buckets if size >= count)
        program = self._program(bucket)
        filled = program.take_input()
        call = filled.call

        # Up to the bucket's size the first group is repeated, as padding that is stored nowhere.
        padded = [*ready, *[ready[0]] * (bucket - count)]
        group, slot, row = np.array(padded, np.int32).T
        call.groups[:] = group
        call.groups[count:] = self._groups
        # The learner unrolls from row 0, so only the states before it are stored.
        call.slots[:] = np.where(row == 0, slot, self._num_slots)
        call.slots[count:] = self._num_slots
        rows = slot * self._slot_rows + row
        self._rows.copy(rows, call.first.reshape(bucket, self._envs), filled.observation)
        program, filled = self._cropped(bucket, program, filled)

        version, params = self._publisher.newest(self._device)
        launch_start = time.perf_counter()
        with self._state_lock:
            choice, self._state = program.run(params, self._state, self._key, filled.packed)
        choice.copy_to_host_async()
        self.counter += 1
        end = time.perf_counter()
        return _Running(
            ready=ready,
            rows=rows[:count],
            version=version,
            choice=choice,
            program=program,
            input=filled,
            host_seconds=end - start,
            launch_seconds=end - launch_start,
        )

    def _finish(self, running: _Running, waiting: Sequence[Ready]) -> None:
        """Waits for the choice of a call, writes it, and lets the groups in `waiting` act."""
        start = time.perf_counter()
        packed = np.asarray(running.choice)
        device_end = time.perf_counter()
        # Not before the choice is there: until then the device may read the input.
        running.program.give_back(running.input)
        count = len(running.rows)
        # By group and environment, without padding.
        choice = unpack_choice(packed, self._action)
        action, log_prob, value = (x.reshape(-1, self._envs, *x.shape[1:])[:count] for x in choice)
        # The actions of a group that has restarted since are overwritten before its new process
        # plays there.
        self._rows.write(running.rows, action, log_prob, value, running.version)
        num_groups = len(running.input.call.groups)
        self._meters.add_all(
            {
                "inference/host": running.host_seconds + time.perf_counter() - device_end,
                "inference/launch": running.launch_seconds,
                "inference/device": device_end - start,
                "inference/bytes": running.input.packed.nbytes,
                "inference/rows": count * self._envs,
                "inference/padding": (num_groups - count) * self._envs,
            }
        )
        # Last, since actors read the actions from the slots at once.
        with self._meters.time("inference/act"):
            self._actors.act(waiting)
