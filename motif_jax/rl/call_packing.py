"""Packs the inputs of an inference call into one array of bytes, and its outputs into one array.

On a GPU each array that goes to the device costs the launching thread some 0.1 ms, whatever its
size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.envs.spec import ArraySpec

_ALIGNMENT = 8  # bytes, of every part


class _Part(NamedTuple):
    """Bytes [offset, offset + size) of the packed array: an array of `shape` and `dtype`."""

    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, packed: np.ndarray) -> np.ndarray:
        return packed[self.offset : self.offset + self.size].view(self.dtype).reshape(self.shape)

    def unpack(self, packed: jax.Array) -> jax.Array:
        content = packed[self.offset : self.offset + self.size]
        dtype = np.dtype(self.dtype)
        # `bitcast_convert_type` joins the bytes of the last axis, and knows no booleans.
        if dtype.itemsize > 1:
            content = content.reshape(-1, dtype.itemsize)
        if dtype == np.bool_:
            return content.reshape(self.shape) != 0
        return jax.lax.bitcast_convert_type(content, dtype).reshape(self.shape)


class Call(NamedTuple):
    """The inputs of an inference call, as views of a packed array on the host or as arrays inside
    the program.

    Attributes:
      groups: int32 [G], the groups whose environments the rows belong to; the number of all groups
          stands for padding.
      slots: int32 [G], the slots before which the recurrent states are stored; the number of all
          slots stands for none.
      first: uint8 [N], whether an episode begins; N is G times the environments of a group.
      observation: fields [N, ...].
    """

    groups: Any
    slots: Any
    first: Any
    observation: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class CallLayout:
    """The positions of a `Call`'s parts in a packed array of `size` bytes."""

    groups: _Part
    slots: _Part
    first: _Part
    observation: tuple[tuple[str, _Part], ...]
    size: int

    @classmethod
    def of(
        cls, groups: int, envs: int, fields: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> CallLayout:
        """Lays out a call for `groups` groups of `envs` environments; `fields` are name -> (shape
        of a row, dtype).
        """
        offset = 0

        def part(shape: tuple[int, ...], dtype: str) -> _Part:
            nonlocal offset
            start = offset
            size = math.prod(shape) * np.dtype(dtype).itemsize
            offset += size
            offset += -offset % _ALIGNMENT
            return _Part(start, size, shape, dtype)

        rows = groups * envs
        group_part = part((groups,), "int32")
        slot_part = part((groups,), "int32")
        first_part = part((rows,), "uint8")
        observation = tuple(
            (name, part((rows, *shape), dtype)) for name, (shape, dtype) in fields.items()
        )
        return cls(group_part, slot_part, first_part, observation, offset)

    def views(self, packed: np.ndarray) -> Call:
        """Views of an array uint8 [size] on the host, to be written to."""
        observation = {name: part.view(packed) for name, part in self.observation}
        return Call(
            self.groups.view(packed), self.slots.view(packed), self.first.view(packed), observation
        )

    def unpack(self, packed: jax.Array) -> Call:
        """The parts of an array uint8 [size] on the device, inside a program."""
        chex.assert_shape(packed, (self.size,))
        observation = {name: part.unpack(packed) for name, part in self.observation}
        return Call(
            self.groups.unpack(packed),
            self.slots.unpack(packed),
            self.first.unpack(packed),
            observation,
        )


def pack_choice(action: jax.Array, log_prob: jax.Array, value: jax.Array) -> jax.Array:
    """Actions int32 [N] or float32 [N, n], and two arrays float32 [N], as one array int32
    [n + 2, N] of their bits; n is 1 for int32.
    """
    chex.assert_equal_shape([log_prob, value])
    chex.assert_equal_shape_prefix([action, value], 1)
    # [n, N], with n = 1 for numbered actions.
    action_rows = action.reshape(len(value), -1).T
    rows = [action_rows, log_prob[None], value[None]]
    return jnp.concatenate([jax.lax.bitcast_convert_type(row, jnp.int32) for row in rows])


def unpack_choice(
    packed: np.ndarray, action: ArraySpec
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of `pack_choice`, on the host, for actions of this shape and dtype."""
    *action_rows, log_prob_bits, value_bits = packed
    actions = (
        np.stack(action_rows, axis=-1).view(action.dtype).reshape(len(value_bits), *action.shape)
    )
    return actions, log_prob_bits.view(np.float32), value_bits.view(np.float32)


def bucket_sizes(groups: int) -> list[int]:
    """Numbers of groups that inference is compiled for: powers of two, and all groups."""
    # So less than half of a call is padding, with few programs to compile.
    sizes = [1]
    while sizes[-1] * 2 < groups:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == groups else [*sizes, groups]
