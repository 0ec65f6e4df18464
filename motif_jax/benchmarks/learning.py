"""Measures the time to learn Recall-v0, which needs a memory, or DoorKey-8x8, which needs a reward
of captions.

Value: seconds by the clock until the newest episodes reach the goal, start-up and compilation
included. Baseline: the same in serial mode, in turns. Goals: in Recall-v0 95 % of the best return
over 500 episodes, within 300,000 steps (ten seconds a repeat on 2 cores, both sides together); in
DoorKey 80 % success over 100 episodes, within 250,000 steps, by the reward in docs/examples/doorkey
and the task's (two minutes a repeat). To miss the goal is an error.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, result
from motif_jax.core import resources
from motif_jax.envs.recall import BEST_RETURN
from motif_jax.rl.batch_stream import BatchStream
from motif_jax.rl.episode_log import EpisodeLog
from motif_jax.rl.system import System


class Goal(NamedTuple):
    """The goal of a training with a variant of configs/train_agent.py and the intrinsic reward of a
    file ('' for none).

    The mean of `measure` over the newest `episodes` must reach `level` within `steps`.
    """

    variant: str
    measure: str
    level: float
    episodes: int
    steps: int
    reward: str = ""


GOALS = {
    "Recall-v0": Goal("recall", "episode/return", 0.95 * BEST_RETURN, 500, 300_000),
    "MiniGrid-DoorKey-8x8-v0": Goal(
        "minigrid", "episode/success", 0.8, 100, 250_000, "docs/examples/doorkey/reward.safetensors"
    ),
}


def options() -> ConfigDict:
    """Options of the training; an empty `reward_dir` means the goal's reward."""
    return _agents.training_options(env="Recall-v0", envs_per_worker=32, batch_size=512, rollout=16)


def run(config: ConfigDict) -> dict[str, Any]:
    # (seconds, steps) of each training, in the usual and in serial mode.
    usual: list[tuple[float, int]] = []
    serial: list[tuple[float, int]] = []
    for repeat in range(config.repeats):
        usual.append(learn(config.options, config.seed + repeat, serial=False))
        serial.append(learn(config.options, config.seed + repeat, serial=True))
    return result(
        config,
        "s",
        [seconds for seconds, _ in usual],
        "serial mode",
        [seconds for seconds, _ in serial],
        steps=float(np.median([steps for _, steps in usual])),
        serial_steps=float(np.median([steps for _, steps in serial])),
    )


def learn(options: ConfigDict, seed: int, serial: bool) -> tuple[float, int]:
    """Trains until the goal is reached; returns seconds and steps. Raises RuntimeError after the
    goal's steps.
    """
    start = time.perf_counter()
    goal = GOALS[options.env]
    reward_dir = options.reward_dir
    if not reward_dir and goal.reward:
        reward_dir = str(resources.path(goal.reward))
    with_reward = ConfigDict({**options, "reward_dir": reward_dir})
    training = _agents.training_config(with_reward, seed, variant=goal.variant)
    system = System(dataclasses.replace(training, serial=serial))
    steps = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        EpisodeLog(Path(folder), goal.episodes, False) as log,
        BatchStream(system) as stream,
    ):
        while steps < goal.steps:
            batch = stream.get()
            if batch is None:
                continue
            system.learner.step(batch)
            steps += batch.num_steps
            # Games end in the actors; their intrinsic returns are known to the batch.
            reports = [report for source in system.sources for report in source.actors.episodes()]
            log.write(log.join(steps, reports, batch.intrinsic_returns))
            if log.has_enough_episodes() and log.means()[goal.measure] >= goal.level:
                return time.perf_counter() - start, steps
    raise RuntimeError(
        f"after {steps} steps: {log.means()}, not {goal.measure} of at least {goal.level}"
    )
