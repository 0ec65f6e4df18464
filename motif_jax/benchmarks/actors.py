"""Measures the actor pool alone, slots and hand-over included, with random keys.

    python -m motif_jax.launch --config=configs/benchmark.py:actors

Value: steps a second of one worker's processor time (engine, rules, rows, hand-over). Baseline, also by processor time: the
bare engine with the same observations, prompts dismissed, and as many games in turns as a worker has. Both play in turns of
about a third of a second, `turn` steps of every environment, so that other load disturbs them alike. The bare engine with one
game a core, which has the caches to itself, plays in turns too. Results are medians over the turns.

Further fields: the pool's steps a second by the clock, memory of a game, the share of a worker's time for starting episodes,
and the parent's time for a step: hand-over, gathering a row for inference, copying it into a batch, moving that to the device.
It takes about a minute.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.actors.actor_process import METHODS
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig, Ready
from motif_jax.benchmarks import beside, result
from motif_jax.benchmarks._bare_engine import Bare, write_script
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.support import config as checks
from motif_jax.support import seeds
from motif_jax.support.config import default_workers

_AS_MANY = "bare engine, same observations, prompts dismissed, as many games a core"
_ONE = "the same with one game a core"
_PARENT_SECONDS = 0.2


def options() -> ConfigDict:
    """Task, size of the pool, `steps` of every environment in a repeat, and `turn` steps before sides change."""
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 20,
            "start_method": "auto",
            "rollout": 32,
            "steps": 2_000,
            "turn": 500,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a task without a bare engine, or an unknown start method."""
    checks.choice(config, "options.env", PLAIN_TASKS)
    checks.choice(config, "options.start_method", METHODS)


def run(config: ConfigDict) -> dict[str, Any]:
    """The fields of the JSON line; rates are steps per second of processor time."""
    options = config.options
    found: dict[str, list[float]] = collections.defaultdict(list)
    for repeat in range(config.repeats):
        _measure(options, seeds.derive(config.seed, "actors", repeat), found)
    middle = {name: float(np.median(values)) for name, values in found.items()}
    parent = {part: 1e6 * middle[part] for part in ("hand_over", "gather", "copy", "transfer")}
    return result(
        "actors",
        "steps/s of one core",
        found["pool"],
        _AS_MANY,
        found["bare"],
        options.to_dict(),
        one_game={"what": _ONE, **beside(found["pool"], found["one"])},
        steps_per_second_by_the_clock=middle["clock"],
        parent_microseconds_per_step=sum(parent.values()),
        parent_parts=parent,
        megabytes_per_game=middle["memory"] / 1e6,
        restart_share=middle["restarts"],
    )


def _measure(options: ConfigDict, seed: int, found: dict[str, list[float]]) -> None:
    """Measures a repeat.

    For each turn it appends to `found` steps a second: `pool` by one worker's processor time, `clock` of the whole pool by the
    clock, `bare` of the engine with a worker's games, `one` with one game; and `hand_over`, the parent's seconds a step. For the
    repeat it appends the parent's seconds a step to `gather`, `copy` and `transfer`, `memory` in bytes a game (proportional set
    size of all other processes), and `restarts`, the share of a worker's time for starting episodes.
    """
    envs, steps, workers = options.envs_per_worker, options.steps, options.workers
    script = write_script(options.env, envs, steps, seed)
    # As many steps in one game, which has the core's caches to itself.
    alone = write_script(options.env, 1, envs * steps, seed)
    bare, one, kept = Bare(script, seed), Bare(alone, seed), Bare(alone, seed, shared_code=True)
    rates = []
    with _Pool(options, seed) as pool:
        for start in range(0, steps, options.turn):
            stop = min(start + options.turn, steps)
            count = envs * (stop - start)
            spent, clock, parent = pool.play(stop - start)
            rates.append(workers * count / spent)
            found["clock"].append(workers * count / clock)
            found["hand_over"].append(parent / (workers * count))
            found["bare"].append(count / _spent(bare, start, stop))
            found["one"].append(count / _spent(one, envs * start, envs * stop))
        found["memory"].append(pool.memory())
        for part, seconds in _parent(pool.pool).items():
            found[part].append(seconds)
    kept.play(0, envs * steps)
    for side in (bare, one, kept):
        side.close()
    found["pool"] += rates
    found["restarts"].append(kept.start_seconds * float(np.median(rates)) / (envs * steps))


def _spent(side: Bare, start: int, stop: int) -> float:
    before = time.process_time()
    side.play(start, stop)
    return time.process_time() - before


class _Pool:
    """The pool; between two turns it is idle, since the answers of all groups are held back."""

    def __init__(self, options: ConfigDict, seed: int) -> None:
        self._config = config = ActorsConfig(
            env=options.env,
            options={},
            seed=seed,
            workers=options.workers,
            envs_per_group=options.envs_per_worker // 2,
            rollout=options.rollout,
            start_method=options.start_method,
        )
        self._drawn = np.random.default_rng(seed).integers(0, 23, (64, config.envs_per_group))
        self._rounds = 0
        self._held: list[Ready] = []
        self.pool = ActorPool(config, listeners=[lambda slot: self.pool.release(slot)])

    def __enter__(self) -> _Pool:
        self.pool.__enter__()
        self.pool.start()
        self.play(0)
        return self

    def __exit__(self, *error: Any) -> None:
        self.pool.__exit__(*error)

    def play(self, steps: int) -> tuple[float, float, float]:
        """Plays `steps` of every environment on average, more in faster groups.

        Returns:
          Seconds: the workers' processor time, by the clock, this process's processor time.
        """
        pool, left, ready = self.pool, steps * self._config.groups, self._held
        actions = pool.slots.action
        workers, clock, parent = processor_seconds(pool.pids()), time.perf_counter(), time.process_time()
        self._held = []
        while True:
            self._held += ready[left:]
            for entry in (going := ready[:left]):
                actions[entry.slot, entry.row] = self._drawn[(self._rounds + entry.group) % len(self._drawn)]
                self._rounds += 1
            pool.act(going)
            left -= len(going)
            if len(self._held) == self._config.groups:
                break
            ready = pool.ready(1.0)
        parent, clock = time.process_time() - parent, time.perf_counter() - clock
        return processor_seconds(pool.pids()) - workers, clock, parent

    def memory(self) -> float:
        """Proportional set size of all other processes, bytes a game."""
        processes = psutil.Process().children(recursive=True)
        return sum(process.memory_full_info().pss for process in processes) / self._config.num_envs


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes so far, seconds."""
    return sum(_processor_seconds(pid) for pid in pids)


def _processor_seconds(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:  # a system without that file; this one has a coarser clock
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _parent(pool: ActorPool) -> dict[str, float]:
    """The parent's processor time besides the hand-over, seconds a step.

    `gather`: rows of all groups for an inference call; `copy`: a slot of every group into a batch; `transfer`: the batch, with all
    observation fields, to the device.
    """
    slots, config = pool.slots, pool.config
    groups = np.arange(config.groups) * config.slots_per_group
    rows, length = np.arange(config.groups) % config.rollout, config.rollout
    fields = [*slots.observation.values(), slots.first, slots.reward, slots.action, slots.behaviour_value]
    steps = config.num_envs * length

    def gather() -> Any:
        return [array[groups, rows] for array in slots.observation.values()]

    def copy() -> Any:
        return [np.concatenate([array[slot, : length + 1] for slot in groups], axis=1) for array in fields]

    batch = copy()
    return {
        "gather": _seconds(gather) / config.num_envs,
        "copy": _seconds(copy) / steps,
        "transfer": _seconds(lambda: jax.block_until_ready(jax.device_put(batch))) / steps,
    }


def _seconds(call: Callable[[], Any]) -> float:
    call()
    count, start = 0, time.process_time()
    while time.process_time() - start < _PARENT_SECONDS:
        call()
        count += 1
    return (time.process_time() - start) / count
