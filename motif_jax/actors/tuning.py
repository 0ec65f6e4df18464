"""Finds the best number of games a process on this machine by short trials."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.actors.cores import Cores
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig, Ready
from motif_jax.envs import registry

_SIZES = (2, 3, 4, 5, 7, 10, 20)
# In turns, for a busy neighbour disturbs all alike. Of the first turn all but its end is warming up.
_TURNS = 6
_SECONDS = 0.3


# What was found: JSON of the actors -> their best size.
_found: dict[str, int] = {}


def games_per_process(config: ActorsConfig) -> int:
    """The size that costs the least processor time a step on one core; says on standard error what a trial has found.

    One trial serves the actors of all devices: these differ in their environments' numbers and in their cores alone.
    """
    one = dataclasses.replace(config, workers=1, warmup_steps=0, warmup_seconds=0.0)
    alike = json.dumps(dataclasses.asdict(dataclasses.replace(one, first_env=0, cores=None)), sort_keys=True)
    if alike not in _found:
        with contextlib.closing(Cores(1)) as own:
            cores = own.numbers if config.cores is None else config.cores[:1]
            _found[alike] = _best(dataclasses.replace(one, cores=cores))
    return _found[alike]


def sizes(envs_per_group: int) -> list[int]:
    """Sizes to be tried, increasing: of those that make equally many processes of a group the smallest."""
    smallest: dict[int, int] = {}
    for size in sorted({min(size, envs_per_group) for size in _SIZES}):
        smallest.setdefault(-(-envs_per_group // size), size)
    return sorted(smallest.values())


def _best(config: ActorsConfig) -> int:
    with contextlib.ExitStack() as stack:
        trials = {
            size: stack.enter_context(
                contextlib.closing(_Trial(dataclasses.replace(config, games_per_process=size)))
            )
            for size in sizes(config.envs_per_group)
        }
        for trial in trials.values():
            trial.begin()
        turns = [{size: trial.cost() for size, trial in trials.items()} for _ in range(_TURNS + 1)][1:]
    costs = {size: float(np.median([turn[size] for turn in turns])) for size in trials}
    best = min(costs, key=lambda size: costs[size])
    shown = ", ".join(f"{size}: {1e6 * cost:.1f}" for size, cost in costs.items())
    print(
        f"actors: {best} games a process (µs of processor time a step with {shown})",
        file=sys.stderr,
        flush=True,
    )
    return best


class _Trial:
    """Actors that play random actions; they wait between two turns, when the answers of all groups are held."""

    def __init__(self, config: ActorsConfig) -> None:
        spec, rng = registry.spec(config.env, **config.options), np.random.default_rng(config.seed)
        self._drawn = rng.random((64, config.envs_per_group, spec.num_actions), np.float32)
        self._mask_field = spec.mask_field
        self._config, self._rounds = config, 0
        self._held: list[Ready] = []
        self._pool = ActorPool(config, listeners=[lambda slot: self._pool.release(slot)])

    def begin(self) -> None:
        self._pool.start()
        self._gather(self._pool.ready(1.0))

    def close(self) -> None:
        self._pool.close()

    def cost(self) -> float:
        """Processor seconds a step of one turn, in which each group plays once at least."""
        before, rounds = processor_seconds(self._pool.pids()), self._rounds
        until = time.monotonic() + _SECONDS
        ready, self._held = self._held, []
        while True:
            self._act(ready)
            ready = self._pool.ready(1.0)
            if time.monotonic() >= until:
                break
        self._gather(ready)
        spent = processor_seconds(self._pool.pids()) - before
        return spent / ((self._rounds - rounds) * self._config.envs_per_group)

    def _gather(self, ready: list[Ready]) -> None:
        """Holds the answers of all groups, of which `ready` are there."""
        while True:
            # What a process gave before it died is no more.
            self._held = [entry for entry in self._held if entry.group not in self._pool.begun_anew] + ready
            if len(self._held) == self._config.groups:
                return
            ready = self._pool.ready(1.0)

    def _act(self, ready: list[Ready]) -> None:
        slots = self._pool.slots
        for entry in ready:
            chances = self._drawn[self._rounds % len(self._drawn)]
            if self._mask_field is not None:
                chances = chances * (slots.observation[self._mask_field][entry.slot, entry.row] != 0)
            slots.action[entry.slot, entry.row] = chances.argmax(axis=1)
            self._rounds += 1
        self._pool.act(ready)


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes so far."""
    return sum(_processor_seconds(pid) for pid in pids)


def _processor_seconds(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:  # a system without it, whose clock is coarser
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
