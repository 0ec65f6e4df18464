"""Runs that are stopped and continued: serial ones end like a run that was never stopped, bit for
bit.
"""

from __future__ import annotations

import csv
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.interruption import Interruption
from motif_jax.core.metrics import read_metrics
from motif_jax.rl import agent_checkpoints
from tests.lm import talkers
from tests.play.agent_runs import continuous_config, recall_config
from tests.processes import wait_until
from tests.reward_fixtures import load_config
from tests.rl import oni_runs, runs
from tests.stage_inputs import LEVEL
from tests.toys import Corridor


def recall(tmp_path: Path) -> ConfigDict:
    """A recurrent agent off policy: batches are cut out of the middle of rollouts."""
    del tmp_path
    return recall_config(
        serial=True, batch_size=80, algorithm__epochs=1, actors__warmup_steps=3, environment__recall__delay=9,
        optimizer__schedule="constant", save_every_steps=250,
    )  # fmt: skip


def babyai(tmp_path: Path) -> ConfigDict:
    """A language model on policy."""
    values = {
        "network.model": str(talkers.write(tmp_path / "model")), "network.prompt_tokens": 160,
        "algorithm.epochs": 1, "optimizer.learning_rate": 1e-3, "probes.prompts": "", "save_every_steps": 100,
    }  # fmt: skip
    return load_config("train_language_agent", "smoke", values)


def symbolic(tmp_path: Path) -> ConfigDict:
    """Codes and words, with a memory and with statistics of what was seen."""
    del tmp_path
    values = {
        "environment.name": LEVEL, "rollout": 16, "batch_size": 64, "actors.envs_per_worker": 4,
        "network.image_features": 4, "network.message_features": 4, "network.hidden_size": 4,
        "algorithm.minibatch_size": 32, "algorithm.microbatch_size": 32, "algorithm.recurrence": 8,
        "algorithm.epochs": 1, "save_every_steps": 70,
    }  # fmt: skip
    return load_config("train_agent", "symbolic", values)


def drrn(tmp_path: Path) -> ConfigDict:
    """What was played before is drawn from; each environment keeps its kind of task."""
    values = {
        "environment.name": "BabyAI-MixedTrainLocal-v0", "environment.max_episode_steps": 30, "tests": "",
        "environment.babyai_text.observations": 1, "compat.glam_fixed_kind_per_env": True,
        "network.tokenizer": str(talkers.write(tmp_path / "model")), "network.prompt_tokens": 240,
        "network.embedding": 4, "network.hidden_size": 4, "batch_size": 16, "actors.envs_per_worker": 4,
        "algorithm.replay_steps": 100, "algorithm.replay_draw": 8, "optimizer.learning_rate": 1e-2,
        "keep_checkpoints": 3, "save_every_steps": 50,
    }  # fmt: skip
    return load_config("train_language_agent", "drrn", values)


def train(config: ConfigDict, workdir: Path, steps: int, saves: bool = False) -> Any:
    """The run's state and episodes when it has so many steps; `saves`: there are checkpoints on the
    way.
    """
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.train_for_env_steps = steps
        config.compile_cache = ""
        config.devices.learner = "0"
        config.log_every_seconds = 1e-9  # a row for each update
        if not saves:
            config.save_every_steps = 1_000_000
    training = runs.train(workdir, config)
    assert training.system is not None
    state = training.system.learner.state
    keyless = state._replace(key=jax.random.key_data(state.key))
    return jax.device_get(keyless), runs.episodes(workdir)


def continuous(tmp_path: Path) -> ConfigDict:
    """Actions of real numbers."""
    del tmp_path
    return continuous_config(
        serial=True, actors__warmup_steps=3, optimizer__schedule="constant", save_every_steps=100
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "half", "steps"),
    [
        (recall, 450, 700),
        pytest.param(continuous, 200, 384, marks=pytest.mark.extra),
        pytest.param(babyai, 180, 256, marks=pytest.mark.extra),
        pytest.param(symbolic, 150, 256, marks=pytest.mark.extra),
        pytest.param(drrn, 150, 220, marks=pytest.mark.extra),
    ],
)
def test_a_resumed_run_ends_with_the_same_bits(
    tmp_path: Path, make: Any, half: int, steps: int
) -> None:
    config = make(tmp_path)
    undisturbed_folder = tmp_path / "undisturbed"
    resumed_folder = tmp_path / "resumed"
    undisturbed, undisturbed_episodes = train(config, undisturbed_folder, steps)
    train(config, resumed_folder, half, saves=True)

    resumed, resumed_episodes = train(config, resumed_folder, steps)

    jax.tree.map(np.testing.assert_array_equal, undisturbed, resumed)
    assert undisturbed_episodes == resumed_episodes
    assert len(undisturbed_episodes) > 2
    if config.compat.get("glam_fixed_kind_per_env"):
        for env in range(4):
            kinds = {row["kind"] for row in undisturbed_episodes if row["env"] == env}
            assert len(kinds) <= 1
    rows = learned_rows(undisturbed_folder)
    assert rows == learned_rows(resumed_folder)
    assert len(rows) > 2
    if config.get("published_files"):
        published = published_rows(undisturbed_folder)
        assert published == published_rows(resumed_folder)
        assert ("value" in published[0]) == (make is symbolic)


@pytest.mark.slow
def test_an_episode_that_waited_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported before the checkpoint, and its line was written before the kill."""
    oni_runs.answer(monkeypatch)
    config = oni_runs.oni_config("retrieval", save_every_steps=100, keep_checkpoints=20)
    runs.train(tmp_path, config)
    lines = (tmp_path / "episodes.jsonl").read_bytes()
    for step in runs.steps_of(tmp_path)[:0:-1]:
        shutil.rmtree(tmp_path / agent_checkpoints.FOLDER / str(step))
        if runs.saved(tmp_path, "progress")[1]["progress"]["episode_halves"]["reports"]:
            break
    else:
        raise AssertionError("no episode waited at any checkpoint")
    runs.train(tmp_path, config)
    assert (tmp_path / "episodes.jsonl").read_bytes() == lines


def learned_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics, without times and without what depends on the machine."""
    groups = {
        "step",
        "loss",
        "policy",
        "value",
        "advantage",
        "optimizer",
        "reward",
        "batch",
        "lag",
        "episode",
    }
    rows = []
    for row in read_metrics(folder):
        rows.append({name: value for name, value in row.items() if name.split("/")[0] in groups})
    return rows


def published_rows(folder: Path) -> list[dict[str, str]]:
    """The rows of the published log, without times."""
    with (folder / "log.csv").open() as file:
        return [{**row, "FPS": "", "duration": ""} for row in csv.DictReader(file)]


class SlowCorridor(Corridor):
    """Each step takes longer than the learner waits for a group."""

    def step(self, action: int, out: Mapping[str, np.ndarray]) -> tuple[float, int]:
        time.sleep(0.3)
        return super().step(action, out)


@pytest.mark.slow
def test_an_episode_of_a_rollout_cut_short_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are in no batch: the resumed run plays them again."""
    name = f"{__name__}:SlowCorridor"
    monkeypatch.setenv("MOTIF_JAX_TRUST", name)

    def config(steps: int) -> ConfigDict:
        return recall_config(
            environment__name=name, environment__max_episode_steps=3, on_policy=True, actors__rebuild=True, rollout=8,
            actors__workers=1, actors__envs_per_worker=2, batch_size=16, train_for_env_steps=steps,
        )  # fmt: skip

    stop = Interruption()
    run = runs.prepared(tmp_path, config(1000))
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(run.run, stop)
        wait_until(lambda: run.clock.steps >= 16, "an update")
        assert run.system is not None
        updates = run.system.learner.version
        time.sleep(1.6)  # five steps of the next rollout
        stop.requested = True
        assert ended.result(60) is False
    assert run.system.learner.version == updates, "the stop cut a rollout"

    runs.train(tmp_path, config(48))

    episodes = [(row["env"], row["episode"]) for row in runs.episodes(tmp_path)]
    for env in (0, 1):
        numbers = sorted(episode for episode_env, episode in episodes if episode_env == env)
        assert len(numbers) > 5
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
