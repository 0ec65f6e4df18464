"""Trajectory slots: one block of shared memory that actors and inference write in place and the
batcher reads.

A slot holds a rollout of one group of environments, time first: every array is
[slots, T + 1, envs, ...]. The memory is anonymous (memfd): it has no name that could outlive the
processes that map it, whichever way they end.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
from collections.abc import Mapping, Sequence

import numpy as np

from motif_jax.core import capacity
from motif_jax.core.errors import UserError
from motif_jax.envs.spec import EnvironmentSpec

# fills memory before it is written to; as float32 it is -2.87e-16, as int32 -1515870811
MAGIC = 0xA5
_ALIGNMENT = 64  # bytes, of every array
NEXT_EPISODE = "next_episode"  # an array with a row for each group, not for each slot

# Written by the actors at every row ('reward' ... 'truncated' belong to the action at that row).
ACTOR_FIELDS = {
    "first": "uint8",
    "last": "uint8",
    "episode": "int32",
    "reward": "float32",
    "terminated": "uint8",
    "truncated": "uint8",
}
# Written by inference at rows 0 .. T - 1.
ACTION = "action"
INFERENCE_FIELDS = {
    ACTION: "int32",  # replaced by `EnvironmentSpec.action`
    "behaviour_log_prob": "float32",
    "behaviour_value": "float32",
    "parameter_version": "int32",
}
# Row 0 of a group's slot repeats row T of its slot before, in the observation and these fields.
CARRIED_FIELDS = ("first", "last", "episode")


@dataclasses.dataclass(frozen=True)
class SlotLayout:
    """The arrays' positions in the block.

    Attributes:
      groups: number of groups.
      slots_per_group: slot g * slots_per_group + k belongs to group g.
      rollout: T, steps of a slot; it has T + 1 rows.
      envs: environments of a group.
      observation: names of the environment's fields.
      arrays: name -> (byte offset, shape, dtype name).
      size: bytes of the block.
    """

    groups: int
    slots_per_group: int
    rollout: int
    envs: int
    observation: tuple[str, ...]
    arrays: Mapping[str, tuple[int, tuple[int, ...], str]]
    size: int

    @classmethod
    def of(
        cls, spec: EnvironmentSpec, groups: int, per_group: int, rollout: int, envs: int
    ) -> SlotLayout:
        """Lays out slots with `spec`'s observation fields.

        Raises UserError: an observation field has the name of a field of the slots.
        """
        clashing = set(spec.observation) & {*ACTOR_FIELDS, *INFERENCE_FIELDS, NEXT_EPISODE}
        if clashing:
            raise UserError(
                f"config.environment.name: its observation has fields named {', '.join(sorted(clashing))}, as parts of a trajectory are: "
                "give them other names by a wrapper (--config.environment.wrappers)"
            )

        leading = (groups * per_group, rollout + 1, envs)
        shapes: dict[str, tuple[tuple[int, ...], str]] = {}
        for name, field in spec.observation.items():
            shapes[name] = ((*leading, *field.shape), field.dtype)
        for name, dtype in (ACTOR_FIELDS | INFERENCE_FIELDS).items():
            shapes[name] = (leading, dtype)
        shapes[ACTION] = ((*leading, *spec.action.shape), spec.action.dtype)
        shapes[NEXT_EPISODE] = ((groups, envs), "int32")

        arrays = {}
        offset = 0
        for name, (shape, dtype) in shapes.items():
            arrays[name] = (offset, shape, dtype)
            offset += math.prod(shape) * np.dtype(dtype).itemsize
            offset += -offset % _ALIGNMENT
        return cls(groups, per_group, rollout, envs, tuple(spec.observation), arrays, offset)

    @property
    def num_slots(self) -> int:
        return self.groups * self.slots_per_group


class Slots:
    """The arrays of a block of shared memory: [slots, T + 1, envs, ...] unless another shape is
    named.

    Attributes:
      arrays: field -> array, without `next_episode`.
      observation: field -> array, of the environment's fields alone.
      first, last, episode, reward, terminated, truncated: see `ACTOR_FIELDS` and `TrajectoryBatch`;
        `episode` is the number of the environment's episode that the row belongs to.
      action, behaviour_log_prob, behaviour_value, parameter_version: see `INFERENCE_FIELDS` and
        `TrajectoryBatch`.
      next_episode: int32 [groups, envs], number of the episode that each environment starts next.
      descriptor: file descriptor of the block, to be inherited by workers.
    """

    first: np.ndarray
    last: np.ndarray
    episode: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action: np.ndarray
    behaviour_log_prob: np.ndarray
    behaviour_value: np.ndarray
    parameter_version: np.ndarray
    next_episode: np.ndarray

    def __init__(self, layout: SlotLayout, descriptor: int) -> None:
        self.layout = layout
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, layout.size)
        self.observation: dict[str, np.ndarray] = {}
        self.arrays: dict[str, np.ndarray] = {}
        for name, (offset, shape, dtype) in layout.arrays.items():
            count = math.prod(shape)
            array = np.frombuffer(self._memory, dtype=dtype, count=count, offset=offset).reshape(
                shape
            )
            self.arrays[name] = array
            if name in layout.observation:
                self.observation[name] = array
            else:
                setattr(self, name, array)
        del self.arrays[NEXT_EPISODE]

    @classmethod
    def create(cls, layout: SlotLayout) -> Slots:
        """Makes the block and fills it with `MAGIC`."""
        descriptor = os.memfd_create("trajectory_slots")
        os.ftruncate(descriptor, layout.size)
        slots = cls(layout, descriptor)
        np.frombuffer(slots._memory, dtype=np.uint8)[:] = MAGIC
        return slots

    def carry(self, full: int, next_slot: int) -> None:
        """Copies row T of slot `full` to row 0 of slot `next_slot`."""
        last_row = self.layout.rollout
        for array in self.observation.values():
            array[next_slot, 0] = array[full, last_row]
        for name in CARRIED_FIELDS:
            self.arrays[name][next_slot, 0] = self.arrays[name][full, last_row]

    def close(self) -> None:
        """Closes the descriptor; the memory stays mapped until the last array is freed."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def require_memory(layouts: Sequence[SlotLayout]) -> None:
    """Raises UserError unless the memory of all `layouts` can be had (this machine's, and this
    control group's).
    """
    size = sum(layout.size for layout in layouts)
    available = capacity.available_memory()
    if available is None or size <= available:
        return
    raise UserError(
        f"trajectory slots need {size / 2**20:,.0f} MiB of memory and {available / 2**20:,.0f} MiB are left: lower "
        "config.actors.workers or config.actors.envs_per_worker"
    )
