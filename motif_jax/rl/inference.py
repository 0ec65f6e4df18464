"""Batched inference: reads observations of waiting groups from their slots and writes actions back.

Recurrent states stay on the device: one table by environment, and one with the states before row 0 of every slot.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.core.devices.meters import Meters
from motif_jax.envs.spec import empty_observation
from motif_jax.nets.policy import PolicyNetwork
from motif_jax.rl.actors.rollouts import Ready, Rollouts
from motif_jax.rl.publishing import Place, Publisher

READY_SECONDS = 0.2


class SampledActions(NamedTuple):
    """The policy's output for N observations: int32, float32, float32 [N]."""

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
    """Draws actions and advances the recurrent states; returns both.

    Args:
      table: recurrent states, leaves [num_envs + 1, ...]; the last row is padding.
      envs: int32 [N], rows of the table.
      observation: fields [N, ...].
      first: uint8 [N], whether an episode begins.
      key, counter: decide the draw, together with the position in the batch.
    """
    state = jax.tree.map(lambda rows: rows[envs], table)
    rows = {name: x[None] for name, x in observation.items()}
    logits, value, state = network.apply(params, rows, state, (first != 0)[None])
    log_probs = jax.nn.log_softmax(logits[0])
    action = jax.random.categorical(jax.random.fold_in(key, counter), log_probs).astype(jnp.int32)
    log_prob = jnp.take_along_axis(log_probs, action[:, None], axis=1)[:, 0]
    table = jax.tree.map(lambda rows, new: rows.at[envs].set(new), table, state)
    return SampledActions(action, log_prob, value[0]), table


@jax.jit
def _store(slot_states: Any, table: Any, envs: jax.Array, targets: jax.Array) -> Any:
    return jax.tree.map(lambda kept, rows: kept.at[targets].set(rows[envs]), slot_states, table)


@jax.jit
def _gather(slot_states: Any, rows: jax.Array) -> Any:
    return jax.tree.map(lambda kept: kept[rows], slot_states)


def _put(tree: Any, leaves: Mapping[str, Any], device: Place) -> Any:
    """`tree` with its non-empty leaves replaced by `leaves`, in their order."""
    found = iter(leaves[name] for name in sorted(leaves))
    return jax.tree.map(lambda x: jax.device_put(next(found), device) if x.size else x, tree)


class Inference:
    """Chooses actions for one set of actors on one device; `key` and `counter` are those of its next draw."""

    def __init__(
        self,
        network: PolicyNetwork,
        actors: Rollouts,
        publisher: Publisher,
        device: Place,
        key: jax.Array,
        meters: Meters,
        counter: int = 0,
    ) -> None:
        self._network, self._actors, self._publisher, self._device = network, actors, publisher, device
        self._meters, self.counter = meters, counter
        self._key = jax.device_put(key, device)
        config = actors.config
        self._envs, self._groups = config.envs_per_group, config.groups
        self._rows = actors.slots.layout.num_slots * self._envs
        self._table = jax.device_put(network.initial_state(config.num_envs + 1), device)
        self._slot_states = jax.device_put(network.initial_state(self._rows + 1), device)
        self._choose = jax.jit(functools.partial(choose, network))
        self.buckets = bucket_sizes(config.groups)
        self._held: list[Ready] = []

    def params(self) -> Any:
        return self._publisher.newest(self._device).params

    def compile(self) -> None:
        params, network = self.params(), self._network
        for bucket in self.buckets:
            count = bucket * self._envs
            shown = empty_observation(network.spec, (count,))
            observation = {name: shown[name] for name in network.fields}
            nobody = np.full(count, self._groups * self._envs, np.int32)
            first, nowhere = np.ones(count, np.uint8), np.full_like(nobody, self._rows)
            choice, _ = self._choose(params, self._table, nobody, observation, first, self._key, np.int32(0))
            self._slot_states = _store(self._slot_states, self._table, nobody, nowhere)
            jax.block_until_ready(choice)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        plain = {"counter": self.counter, "held": [list(each) for each in self._held]}
        return plain, {"table": self._table, "states": self._slot_states}

    def restore(self, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        self.counter, self._held = plain["counter"], [Ready(*each) for each in plain["held"]]
        self._table = _put(self._table, arrays["table"], self._device)
        self._slot_states = _put(self._slot_states, arrays["states"], self._device)

    def serve(self, timeout: float = READY_SECONDS, hold: Callable[[Ready], bool] | None = None) -> int:
        """Chooses the actions of groups, but of those that `hold` is True for; returns how many environments were served."""
        with self._meters.time("inference/wait"):
            # Held groups are served as soon as possible, without a wait for others.
            held = self._held if hold is None else [each for each in self._held if not hold(each)]
            ready = list(self._actors.ready(0 if held else timeout))
            # The process of a held group may have died: the group then plays another slot.
            ready = [each for each in self._held if each.group not in self._actors.begun_anew] + ready
        self._held = [] if hold is None else [each for each in ready if hold(each)]
        ready = [each for each in ready if each not in self._held]
        largest = self.buckets[-1]
        for start in range(0, len(ready), largest):
            part = ready[start : start + largest]
            self._serve(part)
            with self._meters.time("inference/act"):
                self._actors.act(part)
        return len(ready) * self._envs

    def initial_states(self, rows: np.ndarray) -> Any:
        """The recurrent states, [B, ...], before row 0 of finished slots; `rows` int32 [B]: slot * envs_per_group + column."""
        return _gather(self._slot_states, rows)

    def _serve(self, ready: Sequence[Ready]) -> None:
        start = time.perf_counter()
        slots, envs = self._actors.slots, self._envs
        bucket = next(size for size in self.buckets if size >= len(ready))
        padding = [ready[0]] * (bucket - len(ready))
        group, slot, row = np.array([*ready, *padding], np.int32).T
        columns = np.arange(envs, dtype=np.int32)
        tables = (group[:, None] * envs + columns).reshape(-1)
        tables[len(ready) * envs :] = self._groups * envs
        observation = {
            name: slots.observation[name][slot, row].reshape(-1, *self._network.spec.observation[name].shape)
            for name in self._network.fields
        }
        observation = dict(self._network.cropped(observation))
        first = slots.first[slot, row].reshape(-1)
        if (row == 0).any():
            targets = np.where(row[:, None] == 0, slot[:, None] * envs + columns, self._rows).reshape(-1)
            targets[len(ready) * envs :] = self._rows
            self._slot_states = _store(self._slot_states, self._table, tables, targets.astype(np.int32))
        version, params = self._publisher.newest(self._device)
        choice, self._table = self._choose(
            params, self._table, tables, observation, first, self._key, np.int32(self.counter % (1 << 31))
        )
        self.counter += 1
        launched = time.perf_counter()
        num_bytes = sum(x.nbytes for x in (*observation.values(), tables, first))
        found = jax.device_get(tuple(choice))
        action, log_prob, value = (x.reshape(bucket, envs)[: len(ready)] for x in found)
        done = time.perf_counter()
        slot, row = slot[: len(ready)], row[: len(ready)]
        slots.action[slot, row] = action
        slots.behaviour_log_prob[slot, row] = log_prob
        slots.behaviour_value[slot, row] = value
        slots.parameter_version[slot, row] = version
        self._meters.add("inference/host", launched - start + time.perf_counter() - done)
        self._meters.add("inference/device", done - launched)
        self._meters.add("inference/bytes", num_bytes)
        self._meters.add("inference/rows", len(ready) * envs)
        self._meters.add("inference/padding", (bucket - len(ready)) * envs)


def bucket_sizes(groups: int) -> list[int]:
    """Numbers of groups that inference is compiled for: powers of two, and all groups."""
    sizes = [1]
    while sizes[-1] * 2 < groups:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == groups else [*sizes, groups]
