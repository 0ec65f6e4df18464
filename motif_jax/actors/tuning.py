"""How many games a process should have on this machine: a few sizes are tried, for seconds each."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig, Ready
from motif_jax.envs import registry

_SIZES = (1, 2, 3, 4, 5, 7, 10, 20)
_WARM_UP_SECONDS = 0.5
_SECONDS = 1.5


# What was found: JSON of the actors -> their best size.
_found: dict[str, int] = {}


def games_per_process(config: ActorsConfig) -> int:
    """The size that costs the least processor time a step on one core; says on standard error what a trial has found.

    One trial serves the actors of all devices: these differ in their environments' numbers and in their cores alone.
    """
    one = dataclasses.replace(config, workers=1, warmup_steps=0, warmup_seconds=0.0)
    alike = json.dumps(dataclasses.asdict(dataclasses.replace(one, first_env=0, cores=None)), sort_keys=True)
    if alike not in _found:
        cores = None if config.cores is None else config.cores[:1]
        _found[alike] = _best(dataclasses.replace(one, cores=cores))
    return _found[alike]


def _best(config: ActorsConfig) -> int:
    sizes = sorted({min(size, config.envs_per_group) for size in _SIZES})
    costs = {size: _cost(dataclasses.replace(config, games_per_process=size)) for size in sizes}
    best = min(costs, key=lambda size: costs[size])
    told = ", ".join(f"{size}: {1e6 * cost:.1f}" for size, cost in costs.items())
    print(
        f"actors: {best} games a process (µs of processor time a step with {told})",
        file=sys.stderr,
        flush=True,
    )
    return best


def _cost(config: ActorsConfig) -> float:
    """Plays random actions for a while, and so long at least that what was counted was played in the time that is measured."""
    spec, rng = registry.spec(config.env, **config.options), np.random.default_rng(config.seed)
    drawn = rng.random((64, config.envs_per_group, spec.num_actions), np.float32)
    played, spent = 0, 0.0
    up: float | None = None
    begun: float | None = None
    with ActorPool(config, listeners=[lambda slot: pool.release(slot)]) as pool:
        masks = None if spec.mask_field is None else pool.slots.observation[spec.mask_field]

        def choose(entry: Ready) -> np.ndarray:
            chances = drawn[played % len(drawn)]
            if masks is not None:
                chances = chances * (masks[entry.slot, entry.row] != 0)
            return chances.argmax(axis=1)

        pool.start()
        # One answer of each group may have been there before.
        while begun is None or played <= config.groups or time.monotonic() - begun < _SECONDS:
            for entry in (ready := pool.ready(1.0)):
                pool.slots.action[entry.slot, entry.row] = choose(entry)
                played += 1
            pool.act(ready)
            now = time.monotonic()
            if up is None and ready:
                up = now
            if up is not None and begun is None and now - up > _WARM_UP_SECONDS:
                played, spent, begun = 0, processor_seconds(pool.pids()), now
        return (processor_seconds(pool.pids()) - spent) / (played * config.envs_per_group)


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes so far."""
    return sum(_processor_seconds(pid) for pid in pids)


def _processor_seconds(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:  # a system without it, whose clock is coarser
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
