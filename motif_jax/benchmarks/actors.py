"""Measures the actor pool alone, slots and hand-over included, with random keys.

Value: steps a second of one worker's processor time (engine, rules, rows, hand-over). Baseline,
also by processor time: the bare engine with the same observations, prompts dismissed, and as many
games in turns as a worker has. Both play in turns of about a third of a second, `turn` steps of
every environment, so that other load disturbs them alike. The bare engine with one game a core,
which has the caches to itself, plays in turns too. Results are medians over the turns.

Further fields: the pool's steps a second by the clock, and memory of a game. It takes about a
minute.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ml_collections import ConfigDict

from motif_jax.benchmarks import compare, result
from motif_jax.core import seeds
from motif_jax.core.config import default_workers
from motif_jax.envs.nethack.actions import ESCAPE, OPEN_QUESTIONS, SPACE
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.nethack.game import Game, game_seeds
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS
from motif_jax.rl.actors.pool import ActorPool
from motif_jax.rl.actors.rollouts import ActorsConfig, Ready

# By game and step: the action, its key, whether the episode ended.
Script = list[list[tuple[int, int, bool]]]


def options() -> ConfigDict:
    """Task, size of the pool, `steps` of every environment in a repeat, and `turn` steps before
    sides change.
    """
    size = {
        "workers": default_workers(),
        "envs_per_worker": 20,
        "start_method": "auto",
        "rollout": 32,
    }
    return ConfigDict({"env": "NetHackScore-v1", **size, "steps": 2_000, "turn": 500})


def run(config: ConfigDict) -> dict[str, Any]:
    options = config.options
    values: dict[str, list[float]] = collections.defaultdict(list)
    for repeat in range(config.repeats):
        _measure(options, seeds.derive(config.seed, "actors", repeat), values)
    return result(
        config,
        "steps/s of one core",
        values["pool"],
        "bare engine, same observations, prompts dismissed, as many games a core",
        values["bare"],
        one_game={
            "what": "the same with one game a core",
            **compare(values["pool"], values["one"]),
        },
        steps_per_second_by_the_clock=float(np.median(values["clock"])),
        megabytes_per_game=float(np.median(values["memory"])) / 1e6,
    )


def _measure(options: ConfigDict, seed: int, values: dict[str, list[float]]) -> None:
    """Appends the numbers of a repeat to `values`.

    Of each turn it appends steps a second: `pool` by one worker's processor time, `clock` of the
    whole pool by the clock, `bare` of the engine with a worker's games, `one` with one game. Of the
    repeat it appends `memory`, bytes a game.
    """
    # A worker has two groups of the same size.
    envs = 2 * (options.envs_per_worker // 2)
    steps = options.steps
    workers = options.workers
    bare = Bare(write_script(options.env, envs, steps, seed), seed)
    # As many steps in one game, which has the core's caches to itself.
    one = Bare(write_script(options.env, 1, envs * steps, seed), seed)
    with _Pool(options, seed) as pool:
        for start in range(0, steps, options.turn):
            stop = min(start + options.turn, steps)
            count = envs * (stop - start)
            processor_seconds, clock_seconds = pool.play(stop - start)
            values["pool"].append(workers * count / processor_seconds)
            values["clock"].append(workers * count / clock_seconds)
            # The baselines right after the pool, so that other load disturbs all of them alike.
            values["bare"].append(count / _play_seconds(bare, start, stop))
            values["one"].append(count / _play_seconds(one, envs * start, envs * stop))
        values["memory"].append(pool.memory())
    bare.close()
    one.close()


def _play_seconds(side: Bare, start: int, stop: int) -> float:
    """The processor time in which the bare engine plays steps `start` to `stop`."""
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
        self._random_actions = np.random.default_rng(seed).integers(
            0, 23, (64, config.envs_per_group)
        )
        self._steps = 0  # of groups so far
        self._held: list[Ready] = []  # groups that wait for the next turn
        self.pool = ActorPool(config, on_finished=lambda slot: self.pool.release(slot))

    def __enter__(self) -> _Pool:
        self.pool.__enter__()
        self.pool.start()
        # Waits until all groups stand still, as between two turns.
        self.play(0)
        return self

    def __exit__(self, *error: Any) -> None:
        self.pool.__exit__(*error)

    def play(self, steps: int) -> tuple[float, float]:
        """Plays `steps` of every environment on average, more in faster groups; returns seconds of
        processors and clock.
        """
        pool = self.pool
        actions = pool.slots.action
        remaining = steps * self._config.groups
        ready = self._held
        self._held = []
        processor_before = processor_seconds(pool.pids())
        start = time.perf_counter()
        while True:
            # Groups beyond the turn's steps get no answer until the next one.
            acting = ready[:remaining]
            self._held += ready[remaining:]
            for entry in acting:
                number = (self._steps + entry.group) % len(self._random_actions)
                actions[entry.slot, entry.row] = self._random_actions[number]
                self._steps += 1
            pool.act(acting)
            remaining -= len(acting)
            if len(self._held) == self._config.groups:
                break
            ready = pool.ready(1.0)
        clock_seconds = time.perf_counter() - start
        return processor_seconds(pool.pids()) - processor_before, clock_seconds

    def memory(self) -> float:
        """Memory of all other processes (proportional set size), bytes a game."""
        processes = psutil.Process().children(recursive=True)
        return sum(process.memory_full_info().pss for process in processes) / self._config.num_envs


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of processes so far."""
    try:
        texts = [Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii") for pid in pids]
        return sum(int(text.split()[0]) for text in texts) / 1e9
    except OSError:  # a system without that file; this clock is coarser
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def write_script(task: str, games: int, length: int, seed: int) -> Script:
    """Plays `length` random actions in each game by this package's rules, and notes the first key
    of each action.
    """
    script: Script = []
    for index in range(games):
        game = Game(task, NetHackEngine(), MAX_EPISODE_STEPS, {})
        keys: list[int] = []
        game.press = _noting(game.press, keys)
        episode = 0
        steps = []
        game.start(seeds.derive(seed, index, episode))
        for action in seeds.rng(seed, "actions", index).integers(0, 23, length).tolist():
            keys.clear()
            end = game.advance(action)[1]
            # Keys after the first dismiss prompts: `Bare.play` finds them by itself.
            steps.append((action, keys[0], bool(end)))
            if end:
                episode += 1
                game.start(seeds.derive(seed, index, episode))
        game.close()
        script.append(steps)
    return script


def _noting(press: Callable[[int], None], keys: list[int]) -> Callable[[int], None]:
    """`press`, which also appends each key to `keys`."""

    def press_and_note(key: int) -> None:
        keys.append(key)
        press(key)

    return press_and_note


class Bare:
    """The engine alone, which plays a script.

    Attributes:
      engines: one of each game, with a copy of the engine's code of its own.
    """

    def __init__(self, script: Script, seed: int) -> None:
        self._script = script
        self._seed = seed
        self.engines = [NetHackEngine(shared_code=False) for _ in script]
        self._episodes = [0] * len(script)
        for index, engine in enumerate(self.engines):
            engine.start(*game_seeds(seeds.derive(seed, index, 0)))

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of the script in all games, and dismisses prompts as the
        package's rules do.
        """
        # Looked up once, not at every step: this loop is the baseline that is to be as fast as can
        # be.
        handles = [
            (e, e.step, e.done, e.buffers.misc, e.buffers.message_memory, steps, index)
            for index, (e, steps) in enumerate(zip(self.engines, self._script, strict=True))
        ]
        for position in range(start, stop):
            for engine, step, done, misc, message, steps, index in handles:
                _, key, ended = steps[position]
                step(key)
                while not done():
                    # NLE's `misc`: the game waits for yes or no, for a line of text, or for a
                    # space.
                    if misc[2]:
                        step(SPACE)
                    elif misc[1]:
                        step(ESCAPE)
                    elif misc[0]:
                        question = message.tobytes()
                        if not any(word in question for word in OPEN_QUESTIONS):
                            step(ESCAPE)
                        break
                    else:
                        break
                if ended:
                    self._episodes[index] += 1
                    engine.start(
                        *game_seeds(seeds.derive(self._seed, index, self._episodes[index]))
                    )

    def close(self) -> None:
        for engine in self.engines:
            engine.close()
