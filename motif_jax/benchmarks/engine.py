"""What the environments cost over the bare game engine, on one core.

    python -m motif_jax.launch --config=configs/benchmark.py:engine
    python -m motif_jax.launch --config=configs/benchmark.py:engine --config.options.games=20

All sides play the same games with the same keys, in turns of a few hundred steps, and are timed by the processor time
they use, so that other work on the machine disturbs all of them alike. `games` is how many games each side keeps going
in turns, as an actor does: the more, the less of each game is left in the caches when its turn comes. Takes half a minute.

* bare engine (the yardstick): nle's compiled step on buffers for the same observations, prompts dismissed;
* value: our environment (one game), or our group (several);
* besides: single environments in turns, the bare engine with shared code, and nle's gymnasium class.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.envs import registry
from motif_jax.envs.nethack.actions import ESCAPE, OPEN_QUESTIONS, SPACE
from motif_jax.envs.nethack.engine import NetHackEngine
from motif_jax.envs.nethack.game import Game, game_seeds
from motif_jax.envs.nethack.observation import MAX_EPISODE_STEPS
from motif_jax.envs.nethack.status import NUM_STATUS
from motif_jax.envs.nethack.tasks import PLAIN_TASKS
from motif_jax.envs.spec import Row, empty_observation, row
from motif_jax.support import config as checks
from motif_jax.support.seeds import derive, rng

_ROWS = 33
_FIELDS = ("glyphs", "blstats", "message", "tty_chars", "tty_colors")

# For each game: the action, the key it meant, and whether the episode ended there, at each step.
Script = list[list[tuple[int, int, bool]]]
# Plays from one step of every game up to another.
Play = Callable[[int, int], None]


def options() -> ConfigDict:
    """Settings: `games` in turns, `steps` of each repeat over all games, task `env`, `turn` steps before sides change."""
    return ConfigDict({"env": "NetHackScore-v1", "games": 1, "steps": 20_000, "turn": 400})


def check(config: ConfigDict) -> None:
    """Raises UserError for a task without a bare engine, or fewer steps than games."""
    checks.choice(config, "options.env", PLAIN_TASKS)
    steps, games = config.options.steps, config.options.games
    checks.require(steps >= games, "options.steps", steps, f"at least config.options.games={games}")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; steps per second of processor time."""
    options, seed = config.options, config.seed
    games, length = options.games, options.steps // options.games
    turn = max(1, options.turn // games)
    rates: dict[str, list[float]] = {}
    for repeat in range(config.repeats):
        repeat_seed = derive(seed, "engine", repeat)
        script = write_script(options.env, games, length, repeat_seed)
        sides = {name: make(options.env, script, repeat_seed) for name, make in SIDES.items()}
        spent = dict.fromkeys(sides, 0.0)
        for start in range(0, length, turn):
            for name, side in sides.items():
                before = time.process_time()
                side.play(start, min(start + turn, length))
                spent[name] += time.process_time() - before
        agree(sides)
        for name, side in sides.items():
            rates.setdefault(name, []).append(length * games / spent[name])
            side.close()
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    ours = "group" if games > 1 else "environment"
    return result(
        "engine",
        "steps/s of one core",
        rates[ours],
        "bare engine, same observations and keys, prompts dismissed",
        rates["bare"],
        {**options.to_dict(), "repeats": config.repeats, "seed": seed, "side": ours},
        steps_per_second=medians,
        ratio_to_gymnasium_class=medians[ours] / medians["gymnasium"],
        ratio_to_bare_with_shared_code=medians[ours] / medians["bare_shared_code"],
    )


def episode_seed(seed: int, game: int, episode: int) -> int:
    """The seed of a game's n-th episode, for all sides."""
    return derive(seed, game, episode)


def write_script(task: str, games: int, length: int, seed: int) -> Script:
    """Plays random actions and notes what they came to."""
    script: Script = []
    for index in range(games):
        game = Game(task, NetHackEngine(), MAX_EPISODE_STEPS, {})
        keys: list[int] = []
        game.press = _listen(game.press, keys)
        episode, steps = 0, []
        game.start(episode_seed(seed, index, episode))
        for action in rng(seed, "actions", index).integers(0, 23, length).tolist():
            keys.clear()
            end = game.advance(action)[1]
            steps.append((action, keys[0], bool(end)))
            if end:
                episode += 1
                game.start(episode_seed(seed, index, episode))
        game.close()
        script.append(steps)
    return script


def actions_of(script: Script) -> list[list[int]]:
    """The actions of all games at each step."""
    return [[step[0] for step in steps] for steps in zip(*script, strict=True)]


def _listen(press: Callable[[int], None], keys: list[int]) -> Callable[[int], None]:
    def pressed(key: int) -> None:
        keys.append(key)
        press(key)

    return pressed


class Bare:
    """The engine alone.

    Attributes:
      start_seconds: processor time that starting episodes has taken while it played.
    """

    shared_code = False

    def __init__(self, task: str, script: Script, seed: int) -> None:
        self._script, self._seed = script, seed
        self._engines = [NetHackEngine(shared_code=self.shared_code) for _ in script]
        self._episodes = [0] * len(script)
        self.start_seconds = 0.0
        for index, engine in enumerate(self._engines):
            engine.start(*game_seeds(episode_seed(seed, index, 0)))

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of every game."""
        handles = [
            (e, e.step, e.done, e.buffers.misc, e.buffers.message_memory, steps, index)
            for index, (e, steps) in enumerate(zip(self._engines, self._script, strict=True))
        ]
        for position in range(start, stop):
            for engine, step, done, misc, message, steps, index in handles:
                _, key, ended = steps[position]
                step(key)
                while not done():
                    if misc[2]:
                        step(SPACE)
                    elif misc[1]:
                        step(ESCAPE)
                    elif misc[0]:
                        shown = message.tobytes()
                        if not any(word in shown for word in OPEN_QUESTIONS):
                            step(ESCAPE)
                        break
                    else:
                        break
                if ended:
                    self._episodes[index] += 1
                    before = time.process_time()
                    engine.start(*game_seeds(episode_seed(self._seed, index, self._episodes[index])))
                    self.start_seconds += time.process_time() - before

    def status(self) -> np.ndarray:
        """Where the games stand: int64 [games, 27]."""
        return np.stack([engine.buffers.blstats for engine in self._engines])

    def close(self) -> None:
        """Frees the games."""
        for engine in self._engines:
            engine.close()


class BareSharedCode(Bare):
    """The engine alone, with one copy of its code for all games."""

    shared_code = True


class Single:
    """Single environments in turns, each writing into rows of larger arrays."""

    def __init__(self, task: str, script: Script, seed: int) -> None:
        self._seed = seed
        self._actions = actions_of(script)
        self._environments = [registry.make(task) for _ in script]
        arrays = empty_observation(self._environments[0].spec, (_ROWS, len(script)))
        self._rows = [[row(arrays, time, column) for column in range(len(script))] for time in range(_ROWS)]
        self._blstats = arrays["blstats"]
        self._episodes = [0] * len(script)
        self._newest = 0
        for index, environment in enumerate(self._environments):
            environment.reset(episode_seed(seed, index, 0), self._rows[0][index])

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of every game."""
        steps = [environment.step for environment in self._environments]
        for position in range(start, stop):
            self._newest = position % _ROWS
            rows = self._rows[self._newest]
            for step, action, out in zip(steps, self._actions[position], rows, strict=True):
                if step(action, out)[1]:
                    self._restart(steps.index(step), out)

    def _restart(self, index: int, out: Row) -> None:
        self._episodes[index] += 1
        self._environments[index].reset(episode_seed(self._seed, index, self._episodes[index]), out)

    def status(self) -> np.ndarray:
        """As `Bare.status`, from the observations."""
        return self._blstats[self._newest]

    def close(self) -> None:
        """Frees the games."""
        for environment in self._environments:
            environment.close()


class Group:
    """Our group of games."""

    def __init__(self, task: str, script: Script, seed: int) -> None:
        self._seed = seed
        self._actions = actions_of(script)
        self._group = registry.make_group(task, len(script))
        arrays = empty_observation(self._group.spec, (_ROWS, len(script)))
        self._rows = [row(arrays, time) for time in range(_ROWS)]
        self._blstats = arrays["blstats"]
        self._episodes = [0] * len(script)
        self._newest = 0
        for index in range(len(script)):
            self._group.start(index, episode_seed(seed, index, 0))

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of every game."""
        group = self._group
        columns = range(group.count)
        for position in range(start, stop):
            self._newest = position % _ROWS
            _, ends = group.step(self._actions[position], columns)
            if any(ends):
                for index in columns:
                    if ends[index]:
                        self._episodes[index] += 1
                        group.start(index, episode_seed(self._seed, index, self._episodes[index]))
            group.observe(self._rows[self._newest])

    def status(self) -> np.ndarray:
        """As `Bare.status`, from the observations."""
        return self._blstats[self._newest]

    def close(self) -> None:
        """Frees the games."""
        self._group.close()


class GymnasiumClass:
    """nle's own gymnasium class, without wrappers, with the same observations."""

    def __init__(self, task: str, script: Script, seed: int) -> None:
        import gymnasium

        self._script, self._seed = script, seed
        self._environments: list[Any] = [
            gymnasium.make(
                "nle:NetHackScore-v0",
                observation_keys=_FIELDS,
                actions=tuple(range(256)),  # an action is its key
                max_episode_steps=2 * MAX_EPISODE_STEPS,
                fix_moon_phase=True,
            ).unwrapped
            for _ in script
        ]
        self._episodes = [0] * len(script)
        self._status = np.zeros((len(script), NUM_STATUS), np.int64)
        for index in range(len(script)):
            self._start(index)

    def _start(self, index: int) -> np.ndarray:
        environment = self._environments[index]
        core, disp = game_seeds(episode_seed(self._seed, index, self._episodes[index]))
        environment.seed(core, disp, reseed=False)
        return environment.reset()[0]["blstats"]

    def play(self, start: int, stop: int) -> None:
        """Plays steps `start` to `stop` of every game."""
        status: list[np.ndarray] = [self._status] * len(self._environments)
        for position in range(start, stop):
            for index, environment in enumerate(self._environments):
                _, key, ended = self._script[index][position]
                status[index] = environment.step(key)[0]["blstats"]
                if ended:
                    self._episodes[index] += 1
                    status[index] = self._start(index)
        self._status = np.stack(status)

    def status(self) -> np.ndarray:
        """As `Bare.status`."""
        return self._status

    def close(self) -> None:
        """Frees the games."""
        for environment in self._environments:
            environment.close()


SIDES: dict[str, Callable[[str, Script, int], Any]] = {
    "bare": Bare,
    "environment": Single,
    "group": Group,
    "bare_shared_code": BareSharedCode,
    "gymnasium": GymnasiumClass,
}


def agree(sides: dict[str, Any]) -> None:
    """Raises RuntimeError unless all sides have played the same games."""
    expected = sides["bare"].status()
    for name, side in sides.items():
        if not np.array_equal(side.status(), expected):
            raise RuntimeError(f"{name} and the bare engine did not play the same game")
