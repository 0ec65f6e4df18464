"""The actor pool alone, slots and hand-over included, with random keys.

    python -m motif_jax.launch --config=configs/benchmark.py:actors

Value: steps a second of one worker's processor time (engine, rules, rows, hand-over). Yardstick, by processor time too: the
bare engine with the same observations, prompts dismissed, as many games in turns as a worker has. Both play in turns of about a
third of a second, `turn` steps of every environment, so that a busy neighbour disturbs them alike; so does the bare engine with
one game a core, which has the caches to itself. Reported are medians over the turns.

Further fields: the pool's steps a second by the clock, memory of a game, the share of a worker's time for starting episodes,
and the parent's time for a step: hand-over, gathering a row for inference, copying it into a batch, moving that to the device.
About a minute.
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
from motif_jax.actors.rollouts import ActorsConfig, Ready
from motif_jax.actors.tuning import processor_seconds
from motif_jax.benchmarks import beside, result
from motif_jax.benchmarks._bare_engine import Bare, BareSharedCode, write_script
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.rl import settings
from motif_jax.support import config as checks
from motif_jax.support import seeds
from motif_jax.support.config import default_workers

_SIZE_KEY = "options.games_per_process"
_AS_MANY = "bare engine, same observations, prompts dismissed, as many games a core"
_ONE = "the same with one game a core"
_PARENT_SECONDS = 0.2


def options() -> ConfigDict:
    """Settings: task, size of the pool, `steps` of every environment in a repeat, and `turn` of them before sides change."""
    return ConfigDict(
        {
            "env": "NetHackScore-v1",
            "workers": default_workers(),
            "envs_per_worker": 20,
            "games_per_process": "4",
            "start_method": "auto",
            "rollout": 32,
            "steps": 2_000,
            "turn": 500,
        }
    )


def check(config: ConfigDict) -> None:
    """Raises UserError for a task without a bare engine, an unknown start method, or too many games."""
    checks.choice(config, "options.env", PLAIN_TASKS)
    checks.choice(config, "options.start_method", METHODS)
    settings.games_per_process(config, _SIZE_KEY)


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of each side; rates are steps a second, of processor time if not said otherwise.

    Attributes:
      pool: of one worker.
      clock: of the whole pool by the clock.
      hand_over: seconds of the parent's processor time for a step.
      bare: the bare engine with as many games as a worker has.
      one: the bare engine with one game.
    """

    pool: float
    clock: float
    hand_over: float
    bare: float
    one: float


@dataclasses.dataclass(frozen=True)
class MeasuredRepeat:
    """One repeat.

    Attributes:
      gather, copy, transfer: seconds of the parent's processor time for a step, see `_parent`.
      memory: bytes of a game: proportional set size of all other processes, over the games.
      restarts: share of a worker's time that starting episodes takes.
      games_per_process: as configured, or what a trial found.
    """

    turns: list[Turn]
    gather: float
    copy: float
    transfer: float
    memory: float
    restarts: float
    games_per_process: int


def run(config: ConfigDict) -> dict[str, Any]:
    """The fields of the JSON line; rates are steps per second of processor time."""
    options = config.options
    settled = ConfigDict(
        {**options.to_dict(), "games_per_process": settings.games_per_process(config, _SIZE_KEY)}
    )
    found = []
    for repeat in range(config.repeats):
        seed = seeds.derive(config.seed, "actors", repeat)
        found.append(_measure(settled, seed))
        settled.games_per_process = found[0].games_per_process  # one trial for all
    turns = [turn for one in found for turn in one.turns]
    ours, one_game = _all(turns, "pool"), _all(turns, "one")
    parent = {"hand_over": 1e6 * float(np.median(_all(turns, "hand_over")))}
    parent |= {part: 1e6 * float(np.median(_all(found, part))) for part in ("gather", "copy", "transfer")}
    return result(
        "actors",
        "steps/s of one core",
        ours,
        _AS_MANY,
        _all(turns, "bare"),
        options.to_dict(),
        one_game={"what": _ONE, **beside(ours, one_game)},
        steps_per_second_by_the_clock=float(np.median(_all(turns, "clock"))),
        parent_microseconds_per_step=sum(parent.values()),
        parent_parts=parent,
        megabytes_per_game=float(np.median(_all(found, "memory"))) / 1e6,
        games_per_process=found[0].games_per_process,
        restart_share=float(np.median(_all(found, "restarts"))),
    )  # fmt: skip


def _all(found: Sequence[Any], name: str) -> list[float]:
    return [getattr(one, name) for one in found]


def _measure(options: ConfigDict, seed: int) -> MeasuredRepeat:
    envs, steps = options.envs_per_worker, options.steps
    script = write_script(options.env, envs, steps, seed)
    # As many steps, by a game that has the core's caches to itself.
    alone = write_script(options.env, 1, envs * steps, seed)
    bare, one = Bare(options.env, script, seed), Bare(options.env, alone, seed)
    kept = BareSharedCode(options.env, alone, seed)
    turns = []
    with _Pool(options, seed) as pool:
        for start in range(0, steps, options.turn):
            stop = min(start + options.turn, steps)
            count = envs * (stop - start)
            workers, clock, parent = pool.play(stop - start)
            turns.append(
                Turn(
                    pool=options.workers * count / workers,
                    clock=options.workers * count / clock,
                    hand_over=parent / (options.workers * count),
                    bare=count / _spent(bare, start, stop),
                    one=count / _spent(one, envs * start, envs * stop),
                )
            )
        memory, parts, games = pool.memory(), _parent(pool.pool), pool.pool.config.games_per_process
    kept.play(0, envs * steps)
    for side in (bare, one, kept):
        side.close()
    rate = float(np.median(_all(turns, "pool")))
    assert games is not None, "a trial has found it"
    return MeasuredRepeat(turns, *parts, memory, kept.start_seconds * rate / (envs * steps), games)


def _spent(side: Bare, start: int, stop: int) -> float:
    before = time.process_time()
    side.play(start, stop)
    return time.process_time() - before


class _Pool:
    """The pool, idle between two turns: the answers of all groups are held then."""

    def __init__(self, options: ConfigDict, seed: int) -> None:
        self._config = config = ActorsConfig(
            env=options.env,
            options={},
            seed=seed,
            workers=options.workers,
            envs_per_group=options.envs_per_worker // 2,
            rollout=options.rollout,
            games_per_process=options.games_per_process,
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
        """Plays `steps` of every environment; returns seconds: the workers' processor time, by the clock, this process's.

        Faster groups play more of them.
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
        """Proportional set size of all processes that are not this one, bytes a game."""
        sizes = [psutil.Process(pid).memory_full_info().pss for pid in _processes()]
        return sum(sizes) / self._config.num_envs


def _processes() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


def _parent(pool: ActorPool) -> tuple[float, float, float]:
    """Seconds of processor time for a step, of the parent's work besides the hand-over.

    Gathering rows of all groups for an inference call, copying a slot of every group into a batch, and moving the batch, with
    all observation fields, to the device.
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


def _seconds(call: Callable[[], Any]) -> float:
    call()
    count, start = 0, time.process_time()
    while time.process_time() - start < _PARENT_SECONDS:
        call()
        count += 1
    return (time.process_time() - start) / count
