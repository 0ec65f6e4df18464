"""Steps of BabyAI-Text with prompts on one core, against minigrid's own steps.

    python -m motif_jax.launch --config=configs/benchmark.py:babyai

Both sides play the same episodes, seeds and random actions in turns, resets included, and are timed by the processor time they use; their
returns have to agree. Takes half a minute.

* value: what an actor does: codes, clauses, the prompt of three observations, counts of texts, the rewards;
* baseline: the same level's `reset` and `step` of minigrid.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import result
from motif_jax.envs import registry
from motif_jax.envs.babyai_text import catalogue, levels
from motif_jax.envs.spec import RUNNING, empty_observation
from motif_jax.support import config as checks
from motif_jax.support import seeds


def options() -> ConfigDict:
    """Settings: the `level`, and `episodes` of each side a repeat."""
    return ConfigDict({"level": "BabyAI-GoToLocal-v0", "episodes": 200})


def check(config: ConfigDict) -> None:
    """Raises UserError for no episodes or a level that there is not."""
    checks.positive(config, "options.episodes")
    level = config.options.level
    checks.require(catalogue.find(level) is not None, "options.level", level, "a level of BabyAI-Text")


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line; steps per second of processor time."""
    given = config.options
    ours, theirs = _Ours(given.level), _Theirs(given.level)
    rates: tuple[list[float], list[float]] = ([], [])
    steps = 0
    for repeat in range(-1, config.repeats):  # the first warms both up
        games = [seeds.derive(config.seed, "babyai", repeat, game) for game in range(given.episodes)]
        found = [_timed(side, games) for side in (ours, theirs)]
        if found[0][1:] != found[1][1:]:
            raise RuntimeError(f"the two sides do not play the same games: {found[0][1:]}, {found[1][1:]}")
        steps = found[0][1]
        if repeat >= 0:
            for side, (seconds, *_) in zip(rates, found, strict=True):
                side.append(steps / seconds)
    return result(
        "babyai",
        "steps/s of one core, prompts included",
        rates[0],
        "minigrid's own reset and step on the same episodes",
        rates[1],
        {**given.to_dict(), "repeats": config.repeats, "seed": config.seed, "steps_a_repeat": steps},
    )


def _timed(side: Any, games: list[int]) -> tuple[float, int, float]:
    """Seconds of the processor, steps, and the sum of returns."""
    before = time.process_time()
    played = [side.play(game) for game in games]
    seconds = time.process_time() - before
    return seconds, sum(steps for steps, _ in played), round(sum(earned for _, earned in played), 6)


class _Ours:
    def __init__(self, level: str) -> None:
        self._env = registry.make(level, fields=("prompt",))
        self._out = empty_observation(self._env.spec)

    def play(self, seed: int) -> tuple[int, float]:
        """Plays an episode of random actions: steps and return."""
        draw = np.random.default_rng(seed).integers(0, 6, 4096).tolist()
        self._env.reset(seed, self._out)
        steps, earned, end = 0, 0.0, RUNNING
        while end == RUNNING:
            reward, end = self._env.step(draw[steps % 4096], self._out)
            steps, earned = steps + 1, earned + reward
        return steps, earned


class _Theirs:
    def __init__(self, level: str) -> None:
        self._level = catalogue.find(level)
        assert self._level is not None
        kinds: tuple[str | None, ...] = self._level.kinds or (None,)
        self._worlds = {kind: levels.build(self._level, kind) for kind in kinds}

    def play(self, seed: int) -> tuple[int, float]:
        """The same episode in minigrid alone."""
        draw = np.random.default_rng(seed).integers(0, 6, 4096).tolist()
        kinds = tuple(self._worlds)
        kind = kinds[int(seeds.rng(seed, "kind").integers(len(kinds)))]
        world = self._worlds[kind]
        world.reset(seed=seed)
        steps, earned, over = 0, 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = world.step(draw[steps % 4096])
            steps, earned, over = steps + 1, earned + float(reward), terminated or truncated
        return steps, earned
