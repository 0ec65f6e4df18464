"""The actor pool alone, slots and hand-over included, with random keys.

    python -m motif_jax.launch --config=configs/benchmark.py:actors
    python -m motif_jax.launch --config=configs/benchmark.py:actors --config.options.sweep=True

Value: steps a second of one worker's processor time (everything that a worker does: engine, rules, rows, pipes);
yardstick: the bare engine with the same observations, prompts dismissed, as many games in turns as a worker has, timed
by processor time too, alternating. Besides: the bare engine with one game a core, which has the caches to itself, nle's
gymnasium class, the pool's steps a second by the clock, and what the parent's hand-over costs. About a minute. `sweep`
repeats it briefly for numbers of environments of a worker (`sweep_envs`) and for 1, 2, 4, ... workers up to the cores.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.benchmarks import result
from motif_jax.benchmarks.engine import Bare, GymnasiumClass, write_script
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.support import config as checks
from motif_jax.support import seeds
from motif_jax.support.config import available_cores, default_workers

_AS_MANY = "bare engine, same observations, prompts dismissed, as many games a core"
_ONE = "the same with one game a core"


def options() -> ConfigDict:
    """Settings: task, size of the pool, and `steps` of every environment in a repeat."""
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 20,
            "rollout": 32,
            "steps": 2_000,
            "sweep": False,
            "sweep_envs": (2, 4, 8, 20),
            "sweep_steps": 400,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a task without the bare engine that is the yardstick, or groups that cannot be halved."""
    checks.choice(config, "options.env", PLAIN_TASKS)
    sweep = config.options.sweep_envs
    even = all(isinstance(envs, int) and envs > 0 and envs % 2 == 0 for envs in sweep)
    checks.require(even, "options.sweep_envs", sweep, "even numbers above 0: a worker has two groups")


@dataclasses.dataclass(frozen=True)
class Measured:
    """One repeat; rates are steps a second, of processor time where nothing else is said.

    Attributes:
      pool: of one worker.
      clock: of the whole pool by the clock.
      parent: seconds of the parent's processor time for a step.
      bare: the bare engine with as many games as a worker has.
      one: the bare engine with one game.
    """

    pool: float
    clock: float
    parent: float
    bare: float
    one: float


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; rates are steps per second of processor time."""
    options = config.options
    found, gymnasium = [], []
    for repeat in range(config.repeats):
        seed = seeds.derive(config.seed, "actors", repeat)
        found.append(_measure(options, seed))
        script = write_script(options.env, options.envs_per_worker, options.steps, seed)
        gymnasium.append(_side(GymnasiumClass(options.env, script, seed), script))
    ours = [one.pool for one in found]
    more = {"sweep": _sweep(options, config.seed)} if options.sweep else {}
    return result(
        "actors",
        "steps/s of one core",
        ours,
        _AS_MANY,
        [one.bare for one in found],
        options.to_dict(),
        one_game={"what": _ONE, "value": _median(found, "one"), "ratio": _median(found, "pool") / _median(found, "one")},
        ratio_to_gymnasium_class=float(np.median(ours) / np.median(gymnasium)),
        steps_per_second_by_the_clock=_median(found, "clock"),
        parent_microseconds_per_step=1e6 * _median(found, "parent"),
        **more,
    )  # fmt: skip


def _median(found: Sequence[Measured], name: str) -> float:
    return float(np.median([getattr(one, name) for one in found]))


def _measure(options: ConfigDict, seed: int) -> Measured:
    """The pool and the bare engine, with as many games and with one, at `options`' size."""
    workers, seconds, own = _pool(options, seed)
    steps = options.workers * options.envs_per_worker * options.steps
    script = write_script(options.env, options.envs_per_worker, options.steps, seed)
    # As many steps, by a game that has the core's caches to itself.
    one = write_script(options.env, 1, options.envs_per_worker * options.steps, seed)
    return Measured(
        steps / workers,
        steps / seconds,
        own / steps,
        _side(Bare(options.env, script, seed), script),
        _side(Bare(options.env, one, seed), one),
    )


def _sweep(options: ConfigDict, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """One short repeat for every number of environments of a worker, and of workers: number -> what was measured."""

    def at(**changes: int) -> dict[str, float]:
        size = ConfigDict({**options.to_dict(), "steps": options.sweep_steps, **changes})
        found = dataclasses.asdict(_measure(size, seeds.derive(seed, "sweep", *changes.values())))
        return {**found, "ratio": found["pool"] / found["bare"], "ratio_to_one": found["pool"] / found["one"]}

    cores = available_cores()
    workers = sorted({min(2**power, cores) for power in range(cores.bit_length() + 1)})
    return {
        "envs_per_worker": {str(envs): at(envs_per_worker=envs) for envs in options.sweep_envs},
        "workers": {str(count): at(workers=count) for count in workers},
    }


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
    with ActorPool(config, listeners=[lambda slot: pool.release(slot)]) as pool:
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
