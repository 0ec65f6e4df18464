"""The program of one call of inference: it draws actions and advances the recurrent states on the
device.

A call has the observations of several groups of environments. Their recurrent states are rows of a
table that stays on the device, and is updated in place.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.algorithms import distributions
from motif_jax.rl.call_packing import Call, CallLayout, pack_choice

MAX_COUNTER = (1 << 31) - 1  # an int32 on the device


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
    """The whole program of a call: `choose` for a `call_packing.Call`; returns the output of
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
