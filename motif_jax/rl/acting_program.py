"""The program of one call of inference: it draws actions and advances the recurrent states on the
device.

A call has the observations of several groups of environments. Their recurrent states are rows of a
table that stays on the device, and is updated in place. The inputs of a call are packed into one
array of bytes, and its outputs into one array: on a GPU each array that goes to the device costs
the launching thread some 0.1 ms, whatever its size.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.envs.spec import ArraySpec
from motif_jax.nets import distributions
from motif_jax.nets.policy import PolicyNetwork

MAX_COUNTER = (1 << 31) - 1  # an int32 on the device
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


class SampledActions(NamedTuple):
    """The choice for N observations: actions int32 [N] or float32 [N, n], log-probabilities and
    values float32 [N].
    """

    action: jax.Array
    log_prob: jax.Array
    value: jax.Array


def choose(
    network: PolicyNetwork,
    params: Any,
    table: Any,
    envs: jax.Array,
    observation: dict[str, jax.Array],
    first: jax.Array,
    key: jax.Array,
    counter: jax.Array,
) -> tuple[SampledActions, Any]:
    """Draws actions and advances the recurrent states; returns the actions and the new table.

    Args:
      table: recurrent states, leaves [num_envs + 1, ...]; the last row is padding.
      envs: int32 [N], rows of the table.
      observation: fields [N, ...].
      first: uint8 [N], whether an episode begins.
      key, counter: decide the draw, together with the position in the batch.
    """
    state = jax.tree.map(lambda rows: rows[envs], table)
    # One step of N environments: [1, N, ...].
    rows = {name: x[None] for name, x in observation.items()}
    outputs, value, state = network.apply(params, rows, state, (first != 0)[None])
    draw_key = jax.random.fold_in(key, counter)
    action, log_prob = distributions.draw(network.spec, outputs[0], draw_key)
    # Padding writes to the last row, several times in any order: nobody reads it.
    table = jax.tree.map(lambda rows, new: rows.at[envs].set(new), table, state)
    return SampledActions(action, log_prob, value[0]), table


class ActingState(NamedTuple):
    """Arrays that stay on the device from call to call and are updated in place.

    Attributes:
      table: recurrent states by environment, leaves [num_envs + 1, ...]; the last row is padding.
      slot_states: recurrent states before row 0 of every slot, leaves [slots * envs + 1, ...]; the
          last row is padding.
      counter: int32 [], number of the next draw.
    """

    table: Any
    slot_states: Any
    counter: jax.Array


def serve_packed(
    network: PolicyNetwork,
    layout: CallLayout,
    params: Any,
    state: ActingState,
    key: jax.Array,
    packed: jax.Array,
) -> tuple[jax.Array, ActingState]:
    """The whole program of a call: `choose` for a `Call`; returns the output of
    `pack_choice` and the new state.
    """
    call = layout.unpack(packed)
    envs = call.first.shape[0] // call.groups.shape[0]
    table_rows = _rows_of(call.groups, envs, _last_row(state.table))
    stored_rows = _rows_of(call.slots, envs, _last_row(state.slot_states))
    # The states before this step. Groups in the middle of a slot write theirs to the last row.
    slot_states = jax.tree.map(
        lambda stored, rows: stored.at[stored_rows].set(rows[table_rows]),
        state.slot_states,
        state.table,
    )
    choice, table = choose(
        network, params, state.table, table_rows, call.observation, call.first, key, state.counter
    )
    counter = (state.counter + 1) & MAX_COUNTER
    return pack_choice(*choice), ActingState(table, slot_states, counter)


def _rows_of(numbers: jax.Array, envs: int, last: int) -> jax.Array:
    """Rows int32 [N] of a table with `envs` rows for each number [G] and one more, the last, for
    padding.
    """
    rows = numbers[:, None] * envs + jnp.arange(envs, dtype=jnp.int32)
    # The number of all groups, or slots, gives rows from `last` on.
    return jnp.minimum(rows.reshape(-1), last)


def _last_row(table: Any) -> int:
    last: int = jax.tree.leaves(table)[0].shape[0] - 1
    return last


@jax.jit
def gather_rows(slot_states: Any, rows: jax.Array) -> Any:
    """Rows of a tree of arrays [slots, ...] by their numbers `rows` int32 [N]: [N, ...]."""
    return jax.tree.map(lambda stored: stored[rows], slot_states)


class CallInput(NamedTuple):
    """The input of a call on the host."""

    packed: np.ndarray
    call: Call  # views of the parts of `packed`
    # views of its observation fields, [groups, numbers of a group's row]
    observation: dict[str, np.ndarray]


class CallProgram:
    """The program of calls of one size, with inputs that no running call reads.

    Attributes:
      run: the compiled program of `serve_packed` for `layout`, which updates the acting state in
          place.
    """

    def __init__(self, network: PolicyNetwork, layout: CallLayout) -> None:
        self.layout = layout
        self.run = jax.jit(functools.partial(serve_packed, network, layout), donate_argnums=(1,))
        self._free: list[CallInput] = []

    def take_input(self) -> CallInput:
        if self._free:
            return self._free.pop()
        packed = np.zeros(self.layout.size, np.uint8)
        call = self.layout.views(packed)
        groups = len(call.groups)
        return CallInput(
            packed, call, {name: x.reshape(groups, -1) for name, x in call.observation.items()}
        )

    def give_back(self, unused: CallInput) -> None:
        """The call that reads it must have ended: a CPU device reads the host's array in place."""
        self._free.append(unused)


def bucket_sizes(groups: int) -> list[int]:
    """Numbers of groups that inference is compiled for: powers of two, and all groups."""
    # So less than half of a call is padding, with few programs to compile.
    sizes = [1]
    while sizes[-1] * 2 < groups:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == groups else [*sizes, groups]
