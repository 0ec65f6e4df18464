"""The actor pool alone, slots and hand-over included, with random keys.

    python -m motif_jax.launch --config=configs/benchmark.py:actors

Value: steps a second of one worker's processor time (everything that a worker does: engine, rules, rows, pipes);
yardstick: the bare engine with the same observations, prompts dismissed, as many games in turns as a worker has, timed
by processor time too, alternating. Besides: nle's gymnasium class, the pool's steps a second by the clock, and what the
parent's hand-over costs. About a minute.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.benchmarks import result
from motif_jax.benchmarks.engine import Bare, GymnasiumClass, write_script
from motif_jax.support import seeds
from motif_jax.support.config import default_workers


def options() -> ConfigDict:
    """Settings: task, size of the pool, and `steps` of every environment in a repeat."""
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 20,
            "rollout": 32,
            "steps": 2_000,
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; rates are steps per second of processor time."""
    options = config.options
    ours, clock, parent, bare, gymnasium = [], [], [], [], []
    for repeat in range(config.repeats):
        seed = seeds.derive(config.seed, "actors", repeat)
        workers, seconds, own = _pool(options, seed)
        steps = options.workers * options.envs_per_worker * options.steps
        ours.append(steps / workers)
        clock.append(steps / seconds)
        parent.append(own / steps)
        script = write_script(options.env, options.envs_per_worker, options.steps, seed)
        bare.append(_side(Bare(options.env, script, seed), script))
        gymnasium.append(_side(GymnasiumClass(options.env, script, seed), script))
    return result(
        "actors",
        "steps/s of one core",
        ours,
        "bare engine, same observations, prompts dismissed",
        bare,
        options.to_dict(),
        ratio_to_gymnasium_class=float(np.median(ours) / np.median(gymnasium)),
        steps_per_second_by_the_clock=float(np.median(clock)),
        parent_microseconds_per_step=1e6 * float(np.median(parent)),
    )


def _side(side: Bare | GymnasiumClass, script: Any) -> float:
    steps = len(script[0])
    start = time.process_time()
    side.play(0, steps)
    spent = time.process_time() - start
    side.close()
    return steps * len(script) / spent


def _pool(options: ConfigDict, seed: int) -> tuple[float, float, float]:
    """Plays; returns seconds of the workers' processor time, by the clock, and of this process's processor time."""
    config = ActorsConfig(
        env=options.env,
        options={},
        seed=seed,
        workers=options.workers,
        envs_per_group=options.envs_per_worker // 2,
        rollout=options.rollout,
    )
    rng = np.random.default_rng(seed)
    with ActorPool(config) as pool:
        pool.on_finished = pool.release
        pool.start()
        num_actions = 23
        played, target = 0, options.steps * config.groups
        started: tuple[float, float, float] | None = None
        while played < target:
            ready = pool.ready(1.0)
            if started is None and len(ready) > 0:
                started = (_worker_seconds(pool), time.perf_counter(), time.process_time())
            for entry in ready:
                pool.slots.action[entry.slot, entry.row] = rng.integers(0, num_actions, config.envs_per_group)
            pool.act(ready)
            played += len(ready)
        assert started is not None
        return (
            _worker_seconds(pool) - started[0],
            time.perf_counter() - started[1],
            time.process_time() - started[2],
        )


def _worker_seconds(pool: ActorPool) -> float:
    """Processor time of the workers so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pool.pids()) / 1e9
