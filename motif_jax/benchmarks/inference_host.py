"""Measures what a call of inference costs the host: everything but the wait for the device.

Value: microseconds of the calling thread's processor time of a call that serves 560 rows, the
median of the repeats' medians. Such a call gathers rows from the slots, launches the program, and
writes actions back. The policy is one product: the device has next to nothing to do, so a machine
without a GPU gives the same answer. Groups reach row 0 of their slots in turns, as in a training.
Baseline, in turns: copying the same observations out of the slots into one array, which is the
least that a call can do. `host_microseconds` has calls of 330 rows, too. Processor time leaves out
waits for the device and other programs. It takes a few seconds.

With `beside=batcher`, calls of 560 rows run in turns alone and beside a batcher, which makes a
batch of 4,096 steps with an intrinsic reward for every 4,096 rows served. `alone` and `beside`
divide a call's mean microseconds: on a core, queued for one, waiting (for the device, or the
interpreter's lock). `batcher_microseconds_per_row` is the batcher's processor time.
"""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.benchmarks._batching_beside import BatchingBeside
from motif_jax.benchmarks._thread_times import ThreadTimes
from motif_jax.core.devices.meters import Meters
from motif_jax.core.errors import UserError
from motif_jax.core.interruption import never
from motif_jax.envs import registry
from motif_jax.envs.spec import EnvironmentSpec
from motif_jax.nets.agent import NETHACK_FIELDS
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready, Rollouts
from motif_jax.rl.inference import Inference
from motif_jax.rl.publishing import Publisher

# Rows of a call -> (groups that wait, environments of a group); there are 30 groups in all.
_CALLS = {330: (11, 30), 560: (14, 40)}
_WORKERS = 15
_GROUPS_PER_WORKER = 2
_SLOTS_PER_GROUP = 3
_ROLLOUT = 32
_BATCHER = "batcher"
_WARM_UP = 40  # calls, in which every group passes a row 0


def options() -> ConfigDict:
    """The task whose observations are copied, calls of each size in a repeat, and what runs beside:
    nothing or `batcher`.
    """
    return ConfigDict({"env": "NetHackScore-v1", "calls": 300, "beside": ""})


def run(config: ConfigDict) -> dict[str, Any]:
    if config.options.beside not in ("", _BATCHER):
        raise UserError(
            f"config.options.beside={config.options.beside}: give {_BATCHER}, or nothing to measure calls alone"
        )
    calls = {rows: _Call(config, *sizes) for rows, sizes in _CALLS.items()}
    for call in calls.values():
        for _ in range(_WARM_UP):
            call.host_seconds()
    values: dict[int, list[float]] = {rows: [] for rows in _CALLS}
    copies: list[float] = []
    largest = max(_CALLS)
    for _ in range(config.repeats):
        for rows, call in calls.items():
            # A repeat's median leaves out calls that the machine's other work slows.
            values[rows].append(_median_microseconds(call.host_seconds, config.options.calls))
        copies.append(_median_microseconds(calls[largest].copy_seconds, config.options.calls))
    more = _measure_beside(calls[largest], config) if config.options.beside else {}
    return result(
        config,
        "microseconds of host work a call",
        values[largest],
        "copying the same observations out of the slots",
        copies,
        rows=largest,
        host_microseconds={str(rows): statistics.median(times) for rows, times in values.items()},
        **more,
    )


def _measure_beside(call: _Call, config: ConfigDict) -> dict[str, Any]:
    """Calls alone and beside a batcher in turns: the medians of the repeats' means."""
    alone = []
    beside = []
    batching = []
    for _ in range(config.repeats):
        alone.append(call.mean_microseconds(config.options.calls))
        with call.batching_beside(config.seed) as batcher:
            beside.append(call.mean_microseconds(config.options.calls, batcher))
        batching.append(batcher.microseconds_per_row)
    return {
        "alone": _medians(alone),
        "beside": _medians(beside),
        "batcher_microseconds_per_row": statistics.median(batching),
    }


def _medians(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(values[name] for values in repeats) for name in repeats[0]}


def _median_microseconds(call: Callable[[], float], count: int) -> float:
    return 1e6 * statistics.median(call() for _ in range(count))


@dataclasses.dataclass(frozen=True)
class _OneProduct:
    """A `PolicyNetwork` that multiplies the message by one matrix."""

    spec: EnvironmentSpec
    fields: tuple[str, ...]

    def init(self, key: jax.Array) -> Any:
        return {"kernel": jax.random.normal(key, (256, self.spec.num_actions))}

    def frozen(self) -> Mapping[str, Any]:
        return {}

    def cropped(self, observation: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return observation

    def prepare(self, params: Any) -> Any:
        return params

    def initial_state(self, batch_size: int) -> Any:
        return jnp.zeros((batch_size, 1), jnp.float32)

    def apply(
        self, params: Any, observation: Mapping[str, jax.Array], state: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, Any]:
        logits = observation["message"].astype(jnp.float32) @ params["kernel"]
        # Every field is read, or the compiler would leave its transfer out.
        value = sum(
            jnp.sum(observation[name].reshape(*first.shape, -1), axis=-1) for name in self.fields
        )
        return logits, jnp.float32(value), jnp.where(first[0][:, None], 0.0, state + 1.0)


class WaitingGroups(Rollouts):
    """Groups that wait for their actions in turns, `count` at a time, and play nothing."""

    def __init__(self, config: ActorsConfig, count: int) -> None:
        super().__init__(config)
        self._count = count
        self._next_group = 0
        # Staggered, so that some group begins a slot in every other call.
        self._row = [group % config.rollout for group in range(config.groups)]

    def start(self, stopped: Callable[[], bool] = never) -> None:
        pass

    def ready(self, timeout: float) -> list[Ready]:
        groups = [(self._next_group + i) % self.config.groups for i in range(self._count)]
        self._next_group = (groups[-1] + 1) % self.config.groups
        waiting = [
            Ready(group, group * self.config.slots_per_group, self._row[group]) for group in groups
        ]
        for group in groups:
            self._row[group] = (self._row[group] + 1) % self.config.rollout
        return waiting

    def act(self, ready: Sequence[Ready]) -> None:
        pass

    def release(self, slot: int) -> None:
        pass

    def episodes(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self.slots.close()

    def _command(self, group: int, slot: int, row: int) -> None:
        pass


class _Call:
    """Calls of inference for `groups` waiting groups of `envs` environments."""

    def __init__(self, config: ConfigDict, groups: int, envs: int) -> None:
        name = config.options.env
        actors = ActorsConfig(
            env=name,
            options={},
            seed=config.seed,
            workers=_WORKERS,
            envs_per_group=envs,
            rollout=_ROLLOUT,
            groups_per_worker=_GROUPS_PER_WORKER,
            slots_per_group=_SLOTS_PER_GROUP,
        )
        network = _OneProduct(registry.spec(name), NETHACK_FIELDS)
        device = jax.local_devices()[0]
        key = jax.random.PRNGKey(config.seed)
        publisher = Publisher([device], network.prepare)
        publisher.publish(0, network.init(key))
        self._groups = WaitingGroups(actors, groups)
        self._fields = network.fields
        self._inference = Inference(network, self._groups, publisher, device, key, Meters())
        self._spec = network.spec

    def host_seconds(self) -> float:
        """The processor time of one call."""
        start = time.thread_time()
        self._inference.serve(0.0)
        return time.thread_time() - start

    def batching_beside(self, seed: int) -> BatchingBeside:
        return BatchingBeside(self._spec, self._groups, self._inference, seed)

    def mean_microseconds(
        self, count: int, batcher: BatchingBeside | None = None
    ) -> dict[str, float]:
        """A call's time on a core, queued for one and waiting, means of `count` calls; `batcher`
        counts their rows.
        """
        thread = threading.get_native_id()
        before = ThreadTimes.now(thread)
        for _ in range(count):
            served = self._inference.serve(0.0)
            if batcher is not None:
                batcher.served(served)
        times = ThreadTimes.now(thread).since(before)
        parts = {"processor": times.processor, "queued": times.queued, "waiting": times.waiting}
        return {name: 1e6 * seconds / count for name, seconds in parts.items()}

    def copy_seconds(self) -> float:
        """The processor time of copying the observations of a call."""
        ready = self._groups.ready(0.0)
        slots = [group.slot for group in ready]
        rows = [group.row for group in ready]
        observation = self._groups.slots.observation
        start = time.thread_time()
        np.concatenate(
            [observation[name][slots, rows].reshape(-1).view(np.uint8) for name in self._fields]
        )
        return time.thread_time() - start
