"""Packs all that an inference call reads into one array of bytes, and its results into one array.

On a GPU each array that goes to the device costs the launching thread some 0.1 ms, whatever its size.
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
        taken, dtype = packed[self.offset : self.offset + self.size], np.dtype(self.dtype)
        if dtype.itemsize > 1:
            taken = taken.reshape(-1, dtype.itemsize)
        if dtype == np.bool_:
            return taken.reshape(self.shape) != 0
        return jax.lax.bitcast_convert_type(taken, dtype).reshape(self.shape)


class Call(NamedTuple):
    """What an inference call reads, as views of a packed array on the host or as arrays inside the program.

    Attributes:
      groups: int32 [G], whose environments the rows belong to; the number of groups stands for padding.
      slots: int32 [G], in which to store the recurrent states before these rows; the number of slots stands for none.
      first: uint8 [N], whether an episode begins; N is G times the environments of a group.
      observation: fields [N, ...].
    """

    groups: Any
    slots: Any
    first: Any
    observation: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class CallLayout:
    """The positions of a `Call` in a packed array of `size` bytes, one part behind the other."""

    groups: _Part
    slots: _Part
    first: _Part
    observation: tuple[tuple[str, _Part], ...]
    size: int

    @classmethod
    def of(cls, groups: int, envs: int, fields: Mapping[str, tuple[tuple[int, ...], str]]) -> CallLayout:
        """Lays out a call for `groups` groups of `envs` environments; `fields` are name -> (shape of a row, dtype)."""
        offset = 0

        def part(shape: tuple[int, ...], dtype: str) -> _Part:
            nonlocal offset
            made = _Part(offset, math.prod(shape) * np.dtype(dtype).itemsize, shape, dtype)
            offset += made.size
            offset += -offset % _ALIGNMENT
            return made

        rows = groups * envs
        leading = part((groups,), "int32"), part((groups,), "int32"), part((rows,), "uint8")
        observation = tuple((name, part((rows, *shape), dtype)) for name, (shape, dtype) in fields.items())
        return cls(*leading, observation, offset)

    def views(self, packed: np.ndarray) -> Call:
        """Views of an array uint8 [size] on the host, to be written to."""
        observation = {name: part.view(packed) for name, part in self.observation}
        groups, slots, first = (part.view(packed) for part in (self.groups, self.slots, self.first))
        return Call(groups, slots, first, observation)

    def unpack(self, packed: jax.Array) -> Call:
        """The same of an array on the device, inside a program."""
        chex.assert_shape(packed, (self.size,))
        observation = {name: part.unpack(packed) for name, part in self.observation}
        groups, slots, first = (part.unpack(packed) for part in (self.groups, self.slots, self.first))
        return Call(groups, slots, first, observation)


def pack_choice(action: jax.Array, log_prob: jax.Array, value: jax.Array) -> jax.Array:
    """Actions int32 [N] and the bits of two arrays float32 [N] as one array int32 [3, N]."""
    chex.assert_equal_shape([action, log_prob, value])
    bits = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in (log_prob, value)]
    return jnp.stack([action, *bits])


def unpack_choice(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arguments of `pack_choice`, on the host."""
    action, *bits = packed
    log_prob, value = (each.view(np.float32) for each in bits)
    return action, log_prob, value
