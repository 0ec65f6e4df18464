"""How long the whole system takes to learn Recall-v0, which needs a memory.

    python -m motif_jax.launch --config=configs/benchmark.py:learning

Value: seconds by the clock from the first batch's start until the mean return of the newest 500 episodes is 95 % of the
best, start-up and compiling included; yardstick: the same in serial mode, alternating. At most 300,000 steps; not
getting there is an error. About ten seconds a repeat on 2 cores, both sides together.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from motif_jax.benchmarks import _agents, result
from motif_jax.envs.recall import BEST_RETURN
from motif_jax.online.episode_log import EpisodeLog
from motif_jax.online.system import BatchStream, System
from motif_jax.support.config import default_workers

MOST_STEPS = 300_000
SHARE = 0.95
_WINDOW = 500


def options() -> ConfigDict:
    """Settings: size of the pool, number format."""
    return ConfigDict(
        {
            "env": "Recall-v0",
            "workers": default_workers(),
            "envs_per_worker": 32,
            "batch_size": 512,
            "rollout": 16,
            "dtype": "float32",
            "reward_dir": "",
        }
    )


def run(config: ConfigDict) -> dict[str, Any]:
    """Returns the fields of the JSON line."""
    found: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
    for repeat in range(config.repeats):
        for serial, values in found.items():
            values.append(learn(config.options, config.seed + repeat, serial))
    return result(
        "learning",
        "s",
        [seconds for seconds, _ in found[False]],
        "serial mode",
        [seconds for seconds, _ in found[True]],
        config.options.to_dict(),
        steps=float(np.median([steps for _, steps in found[False]])),
        serial_steps=float(np.median([steps for _, steps in found[True]])),
    )


def learn(options: ConfigDict, seed: int, serial: bool) -> tuple[float, int]:
    """Trains until the agent remembers; returns seconds and steps.

    Raises:
      RuntimeError: it had not learned after `MOST_STEPS`.
    """
    start = time.perf_counter()
    training = _agents.training_config(options, seed, variant="recall")
    training.serial = serial
    system = System(training)
    steps = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        EpisodeLog(folder, _WINDOW, False) as log,
        BatchStream(system) as stream,
    ):
        while steps < MOST_STEPS:
            batch = stream.get()
            if batch is None:
                continue
            system.learner.step(batch)
            steps += batch.num_steps
            reports = [report for source in system.sources for report in source.actors.episodes()]
            log.add(steps, reports, batch.intrinsic_returns)
            if log.settled() and log.means()["episode/return"] >= SHARE * BEST_RETURN:
                return time.perf_counter() - start, steps
    raise RuntimeError(f"the mean return was {log.means()} after {steps} steps")
