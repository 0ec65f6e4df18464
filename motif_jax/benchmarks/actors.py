"""The actor pool alone, slots and hand-over included, with random keys.

    python -m motif_jax.launch --config=configs/benchmark.py:actors
    python -m motif_jax.launch --config=configs/benchmark.py:actors --config.options.sweep=True

Value: steps a second of one worker's processor time (everything that its processes do: engine, rules, rows, hand-over);
yardstick: the bare engine with the same observations, prompts dismissed, as many games in turns as a worker has, timed
by processor time too, alternating. Besides: the bare engine with one game a core, which has the caches to itself, nle's
gymnasium class, the pool's steps a second by the clock, the memory of an actor's game, the share of a worker's time that new
episodes' starts take, and what a step costs the parent: the hand-over with the actors, gathering a row for inference,
copying it into a batch, and handing that to the device. A parent with one worker sleeps between rounds, and being woken is
most of its cost; so it is also measured with the rounds of many groups lying ready at once. About a minute. `sweep` repeats it briefly for numbers of environments
of a worker (`sweep_envs`), of games of a process (`sweep_games`), for processes that are not forked, and for 1, 2, 4, ...
workers up to the cores.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.actors.launchers import METHODS
from motif_jax.actors.pool import ActorPool
from motif_jax.actors.rollouts import ActorsConfig
from motif_jax.actors.tuning import processor_seconds
from motif_jax.benchmarks import result
from motif_jax.benchmarks.engine import Bare, BareSharedCode, GymnasiumClass, write_script
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.support import config as checks
from motif_jax.support import seeds
from motif_jax.support.config import available_cores, default_workers

_AS_MANY = "bare engine, same observations, prompts dismissed, as many games a core"
_ONE = "the same with one game a core"
_PARENT_SECONDS = 0.2
# Groups of one small environment each, whose rounds lie ready after the pause.
_MANY_WORKERS, _MANY_ROUNDS, _PAUSE_SECONDS = 8, 800, 0.004


def options() -> ConfigDict:
    """Settings: task, size of the pool, and `steps` of every environment in a repeat."""
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 20,
            "games_per_process": 4,
            "start_method": "auto",
            "rollout": 32,
            "steps": 2_000,
            "sweep": False,
            "sweep_envs": (2, 4, 8, 20, 40),
            "sweep_games": (1, 2, 3, 4, 5, 10),
            "sweep_steps": 400,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a task without the bare engine that is the yardstick, or groups that cannot be halved."""
    checks.choice(config, "options.env", PLAIN_TASKS)
    sweep = config.options.sweep_envs
    even = all(isinstance(envs, int) and envs > 0 and envs % 2 == 0 for envs in sweep)
    checks.require(even, "options.sweep_envs", sweep, "even numbers above 0: a worker has two groups")
    games = config.options.sweep_games
    natural = all(isinstance(size, int) and size > 0 for size in games)
    checks.require(natural, "options.sweep_games", games, "numbers above 0")
    checks.choice(config, "options.start_method", METHODS)


@dataclasses.dataclass(frozen=True)
class Measured:
    """One repeat; rates are steps a second, of processor time where nothing else is said.

    Attributes:
      pool: of one worker.
      clock: of the whole pool by the clock.
      hand_over, gather, copy, transfer: seconds of the parent's processor time for a step, see `_parent`.
      bare: the bare engine with as many games as a worker has.
      one: the bare engine with one game.
      memory: bytes of an actor's game: proportional set size of all processes that are not this one, over the games.
      restarts: share of a worker's time that starting episodes takes.
    """

    pool: float
    clock: float
    hand_over: float
    gather: float
    copy: float
    transfer: float
    bare: float
    one: float
    memory: float
    restarts: float

    @property
    def parent(self) -> float:
        """Seconds of the parent for a step, in all."""
        return self.hand_over + self.gather + self.copy + self.transfer


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; rates are steps per second of processor time."""
    options = config.options
    found, gymnasium, together = [], [], []
    for repeat in range(config.repeats):
        seed = seeds.derive(config.seed, "actors", repeat)
        found.append(_measure(options, seed))
        together.append(_together(seed) / (options.envs_per_worker // 2))
        script = write_script(options.env, options.envs_per_worker, options.steps, seed)
        gymnasium.append(_side(GymnasiumClass(options.env, script, seed), script))
    ours = [one.pool for one in found]
    parent = {part: 1e6 * _median(found, part) for part in ("hand_over", "gather", "copy", "transfer")}
    busy = parent | {"hand_over": 1e6 * float(np.median(together))}
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
        parent_parts=parent,
        busy_parent_microseconds_per_step=sum(busy.values()),
        busy_parent_parts=busy,
        megabytes_per_game=_median(found, "memory") / 1e6,
        restart_share=_median(found, "restarts"),
        **more,
    )  # fmt: skip


def _median(found: Sequence[Measured], name: str) -> float:
    return float(np.median([getattr(one, name) for one in found]))


def _measure(options: ConfigDict, seed: int) -> Measured:
    """The pool and the bare engine, with as many games and with one, at `options`' size."""
    played = _pool(options, seed)
    steps = options.workers * options.envs_per_worker * options.steps
    script = write_script(options.env, options.envs_per_worker, options.steps, seed)
    # As many steps, by a game that has the core's caches to itself.
    one = write_script(options.env, 1, options.envs_per_worker * options.steps, seed)
    rate = _side(Bare(options.env, one, seed), one)
    kept = BareSharedCode(options.env, one, seed)
    _side(kept, one)
    pool = steps / played.workers
    return Measured(
        pool=pool,
        clock=steps / played.clock,
        hand_over=played.parent / steps,
        gather=played.gather,
        copy=played.copy,
        transfer=played.transfer,
        bare=_side(Bare(options.env, script, seed), script),
        one=rate,
        memory=played.memory,
        restarts=kept.start_seconds * pool / len(one[0]),
    )


def _sweep(options: ConfigDict, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """One short repeat for every size, number of workers and manner: name -> value -> what was measured."""

    def at(**changes: Any) -> dict[str, float]:
        size = ConfigDict({**options.to_dict(), "steps": options.sweep_steps, **changes})
        found = _measure(size, seeds.derive(seed, "sweep", *changes.values()))
        ratios = {"ratio": found.pool / found.bare, "ratio_to_one": found.pool / found.one}
        return {**dataclasses.asdict(found), **ratios}

    cores = available_cores()
    workers = sorted({min(2**power, cores) for power in range(cores.bit_length() + 1)})
    return {
        "envs_per_worker": {str(envs): at(envs_per_worker=envs) for envs in options.sweep_envs},
        "games_per_process": {str(games): at(games_per_process=games) for games in options.sweep_games},
        "start_method": {method: at(start_method=method) for method in ("fork", "exec")},
        "workers": {str(count): at(workers=count) for count in workers},
    }


def _side(side: Bare | GymnasiumClass, script: Any) -> float:
    steps = len(script[0])
    start = time.process_time()
    side.play(0, steps)
    spent = time.process_time() - start
    side.close()
    return steps * len(script) / spent


@dataclasses.dataclass(frozen=True)
class _Played:
    """Of a pool: seconds of its workers, by the clock, of this process; of a step of what else the parent does; bytes a game."""

    workers: float
    clock: float
    parent: float
    gather: float
    copy: float
    transfer: float
    memory: float


def _pool(options: ConfigDict, seed: int) -> _Played:
    """Plays as many steps as `options` want."""
    config = ActorsConfig(
        env=options.env,
        options={},
        seed=seed,
        workers=options.workers,
        envs_per_group=options.envs_per_worker // 2,
        rollout=options.rollout,
        games_per_process=options.games_per_process,
        start_method=options.start_method,
    )
    drawn = np.random.default_rng(seed).integers(0, 23, (64, config.envs_per_group))
    with ActorPool(config, listeners=[lambda slot: pool.release(slot)]) as pool:
        pool.start()
        actions = pool.slots.action
        played, target = 0, options.steps * config.groups
        started: tuple[float, float, float] | None = None
        while played < target:
            ready = pool.ready(1.0)
            if started is None and len(ready) > 0:
                started = (processor_seconds(pool.pids()), time.perf_counter(), time.process_time())
            for entry in ready:
                actions[entry.slot, entry.row] = drawn[(played + entry.group) % len(drawn)]
            pool.act(ready)
            played += len(ready)
        assert started is not None
        workers = processor_seconds(pool.pids()) - started[0]
        clock, parent = time.perf_counter() - started[1], time.process_time() - started[2]
        memory = sum(psutil.Process(pid).memory_full_info().pss for pid in _processes()) / config.num_envs
        return _Played(workers, clock, parent, *_parent(pool), memory)


def _processes() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


def _parent(pool: ActorPool) -> tuple[float, float, float]:
    """Seconds of processor time for a step, of what the parent does besides the hand-over, as `online` does it.

    Gathering rows of all groups for an inference call, copying a slot of every group into a batch, and handing the batch to
    the device, all of whose observation fields are counted.
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
    return (
        _seconds(gather) / config.num_envs,
        _seconds(copy) / steps,
        _seconds(lambda: jax.block_until_ready(jax.device_put(batch))) / steps,
    )


def _together(seed: int) -> float:
    """Seconds of the parent's processor time for a round, where the rounds of many groups lie ready when it looks."""
    config = ActorsConfig(
        env="Recall-v0", options={}, seed=seed, workers=_MANY_WORKERS, envs_per_group=1, rollout=32
    )
    spent, rounds = [], 0
    with ActorPool(config, listeners=[lambda slot: pool.release(slot)]) as pool:
        pool.start()
        while rounds < _MANY_ROUNDS:
            time.sleep(_PAUSE_SECONDS)
            start = time.process_time()
            ready = pool.ready(0.0)
            for entry in ready:
                pool.slots.action[entry.slot, entry.row] = 0
            pool.act(ready)
            if ready:
                spent.append((time.process_time() - start) / len(ready))
                rounds += len(ready)
    return float(np.median(spent))


def _seconds(call: Callable[[], Any]) -> float:
    """Processor time of one call."""
    call()
    count, start = 0, time.process_time()
    while time.process_time() - start < _PARENT_SECONDS:
        call()
        count += 1
    return (time.process_time() - start) / count
