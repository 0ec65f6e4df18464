"""Runs that are stopped and continued: they go on from their checkpoint with its weights, optimiser
and counters, and begin new games.
"""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.metrics import read_metrics
from motif_jax.oni.label_log import FILE, read_log
from motif_jax.rl import agent_checkpoints
from motif_jax.rl.learner import Learner
from tests.lm import talkers
from tests.play.agent_runs import continuous_config, recall_config
from tests.reward_fixtures import load_config
from tests.rl import oni_runs, runs
from tests.stage_inputs import LEVEL


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
        "environment.max_episode_steps": 12,
    }  # fmt: skip
    return load_config("train_language_agent", "smoke", values)


def symbolic(tmp_path: Path) -> ConfigDict:
    """Codes and words, with a memory and with statistics of what was seen."""
    del tmp_path
    values = {
        "environment.name": LEVEL, "environment.max_episode_steps": 12, "rollout": 16, "batch_size": 64, "actors.envs_per_worker": 4,
        "network.image_features": 4, "network.message_features": 4, "network.hidden_size": 4,
        "algorithm.minibatch_size": 32, "algorithm.microbatch_size": 32, "algorithm.recurrence": 8,
        "algorithm.epochs": 1, "save_every_steps": 70,
    }  # fmt: skip
    return load_config("train_agent", "symbolic", values)


def drrn(tmp_path: Path) -> ConfigDict:
    """What was played before is drawn from; each environment keeps its kind of task."""
    values = {
        "environment.name": "BabyAI-MixedTrainLocal-v0", "environment.max_episode_steps": 12, "tests": "",
        "environment.babyai_text.observations": 1, "compat.glam_fixed_kind_per_env": True,
        "network.tokenizer": str(talkers.write(tmp_path / "model")), "network.prompt_tokens": 240,
        "network.embedding": 4, "network.hidden_size": 4, "batch_size": 16, "actors.envs_per_worker": 4,
        "algorithm.replay_steps": 100, "algorithm.replay_draw": 8, "optimizer.learning_rate": 1e-2,
        "keep_checkpoints": 3, "save_every_steps": 50,
    }  # fmt: skip
    return load_config("train_language_agent", "drrn", values)


def train(config: ConfigDict, workdir: Path, steps: int) -> Any:
    """The run's training state once it has so many steps, on the host."""
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.train_for_env_steps = steps
        config.devices.learner = "0"
        config.log_every_seconds = 1e-9  # a row for each update
    training = runs.train(workdir, config)
    assert training.system is not None
    return on_host(training.system.learner)


def on_host(learner: Learner) -> Any:
    """The learner's training state, with its random keys as numbers."""
    state = learner.state
    return jax.device_get(state._replace(key=jax.random.key_data(state.key)))


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
def test_a_resumed_run_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, half: int, steps: int
) -> None:
    config = make(tmp_path)
    stopped = train(config, tmp_path, half)
    stopped_at, items = runs.saved(tmp_path, "progress")
    progress = items["progress"]
    first_episodes = runs.episodes(tmp_path)
    begun: list[tuple[int, Any]] = []
    step = Learner.step

    def noted_step(learner: Learner, batch: Any) -> None:
        if not begun:
            begun.append((learner.version, on_host(learner)))
        step(learner, batch)

    monkeypatch.setattr(Learner, "step", noted_step)

    train(config, tmp_path, steps)

    [(version, state)] = begun
    assert version == progress["updates"]
    jax.tree.map(np.testing.assert_array_equal, state, stopped)
    # Rows of metrics go on, one for each update.
    rows = list(read_metrics(tmp_path))
    assert [row["time/updates"] for row in rows] == list(range(1, len(rows) + 1))
    taken = [row["step"] for row in rows]
    assert stopped_at in taken
    assert taken == sorted(set(taken))
    assert taken[-1] >= steps
    if config.get("published_files"):
        assert len(published_rows(tmp_path)) == len(rows)
    # The episodes of before stay, and the running ones give way to the next of each environment.
    episodes = runs.episodes(tmp_path)
    assert episodes[: len(first_episodes)] == first_episodes
    later = episodes[len(first_episodes) :]
    assert later
    assert all(row["episode"] >= progress["next_episode"][row["env"]] for row in later)
    assert len({(row["env"], row["episode"]) for row in episodes}) == len(episodes)
    if config.compat.get("glam_fixed_kind_per_env"):
        for env in range(4):
            assert len({row["kind"] for row in episodes if row["env"] == env}) <= 1


def published_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "log.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_resumed_run_asks_no_question_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that came after the checkpoint were paid for: they stay in the log and count."""
    annotator = oni_runs.answer(monkeypatch)
    config = oni_runs.oni_config("retrieval", save_every_steps=100, keep_checkpoints=20)
    runs.train(tmp_path, config)
    answered = [label.items for label in read_log(tmp_path / FILE)]
    for step in runs.steps_of(tmp_path)[1:]:
        shutil.rmtree(tmp_path / agent_checkpoints.FOLDER / str(step))
    annotator.store.clear()

    runs.train(tmp_path, config)

    again = [label.items for label in read_log(tmp_path / FILE)]
    assert len(set(again)) == len(again)
    assert set(answered) <= set(again)
    assert not set(answered) & set(annotator.made[-1].asked)
