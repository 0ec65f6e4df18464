"""Serial runs that are stopped and continued: they end as one that never was, bit for bit."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.rl import agent_checkpoints
from motif_jax.support import resources
from motif_jax.support.metrics import read_metrics
from tests.language import talkers
from tests.rl import oni_runs, runs
from tests.rollouts.agent_runs import recall_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


STEPS = {
    "recall": (450, 700),
    "babyai": (180, 256),
    "symbolic": (150, 256),
    "drrn": (150, 220),
}


def recall(tmp_path: Path) -> ConfigDict:
    """A recurrent agent off policy: batches are cut out of the middle of rollouts."""
    del tmp_path
    return recall_config(
        serial=True,
        batch_size=80,
        algorithm__epochs=1,
        actors__warmup_steps=3,
        environment__recall__delay=9,
        optimizer__schedule="constant",
        save_every_steps=250,
    )


def babyai(tmp_path: Path) -> ConfigDict:
    """A language model on policy."""
    config = resources.config("train_language_agent", "smoke")
    config.network.model = str(talkers.write(tmp_path / "model"))
    config.network.prompt_tokens = 160
    config.compile_cache = ""
    config.devices.learner = "0"
    config.optimizer.learning_rate = 1e-3
    config.algorithm.epochs = 1
    config.probes.prompts = ""
    config.save_every_steps = 100
    return config


def symbolic(tmp_path: Path) -> ConfigDict:
    """Codes and words, with a memory and with statistics of what was seen."""
    del tmp_path
    config = resources.config("train_agent", "symbolic")
    config.environment.name = "BabyAI-GoToLocal-v0"
    network = config.network
    network.image_features = network.message_features = network.hidden_size = 4
    config.rollout, config.batch_size, config.actors.envs_per_worker = 16, 64, 4
    config.algorithm.minibatch_size = config.algorithm.microbatch_size = 32
    config.algorithm.recurrence, config.algorithm.epochs = 8, 1
    config.compile_cache = ""
    config.devices.learner = "0"
    config.save_every_steps = 70
    return config


def drrn(tmp_path: Path) -> ConfigDict:
    """What was played before is drawn from; each environment keeps its kind of task."""
    config = resources.config("train_language_agent", "drrn")
    config.environment.name = "BabyAI-MixedTrainLocal-v0"
    config.compat.glam_fixed_kind_per_env = True
    config.environment.babyai_text.observations = 1
    config.environment.max_episode_steps = 30
    config.network.tokenizer = str(talkers.write(tmp_path / "model"))
    config.network.embedding = config.network.hidden_size = 4
    config.network.prompt_tokens = 240
    config.batch_size, config.actors.envs_per_worker, config.tests = 16, 4, ""
    config.algorithm.replay_steps, config.algorithm.replay_draw = 100, 8
    config.optimizer.learning_rate = 1e-2
    config.compile_cache = ""
    config.devices.learner = "0"
    config.keep_checkpoints = 3
    config.save_every_steps = 50
    return config


def train(config: ConfigDict, workdir: Path, steps: int, saves: bool = False) -> Any:
    """The run's state and episodes when it has so many steps; `saves`: there are checkpoints on the way."""
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.train_for_env_steps = steps
        config.log_every_seconds = 1e-9  # a row for each update
        if not saves:
            config.save_every_steps = 1_000_000
    training = runs.train(workdir, config)
    assert training.system is not None
    state = training.system.learner.state
    leaves = [
        np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(state)
    ]
    return leaves, runs.episodes(workdir)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        recall,
        *(pytest.param(made, marks=pytest.mark.extra) for made in (babyai, symbolic, drrn)),
    ],
)
def test_it_ends_with_the_same_bits_and_the_same_episodes(tmp_path: Path, make: Any) -> None:
    config = make(tmp_path)
    half, whole = STEPS[make.__name__]
    straight, episodes = train(config, tmp_path / "straight", whole)
    train(config, tmp_path / "parts", half, saves=True)
    # A bit of the newest checkpoint is another: the one before it is gone on from.
    newest = max(
        (tmp_path / "parts" / agent_checkpoints.FOLDER).glob("[0-9]*"), key=lambda path: int(path.name)
    )
    file = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    parts, again = train(config, tmp_path / "parts", whole)
    assert episodes == again
    assert len(episodes) > 2
    if config.compat.get("glam_fixed_kind_per_env"):
        assert all(len({row["kind"] for row in episodes if row["env"] == env}) <= 1 for env in range(4))
    for one, other in zip(straight, parts, strict=True):
        np.testing.assert_array_equal(one, other)
    if config.get("published_files"):
        once, twice = (published_rows(tmp_path / name) for name in ("straight", "parts"))
        assert once == twice
        assert ("value" in once[0]) == (make is symbolic)
    learned, again_learned = (learned_rows(tmp_path / name) for name in ("straight", "parts"))
    assert learned == again_learned
    assert len(learned) > 2


@pytest.mark.slow
def test_an_episode_that_waited_for_its_intrinsic_return_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported before the checkpoint, and its line was written before the kill."""
    oni_runs.answer(monkeypatch)
    config = oni_runs.oni_config("retrieval", save_every_steps=100, keep_checkpoints=20)
    oni_runs.train(tmp_path, config)
    lines = (tmp_path / "episodes.jsonl").read_bytes()
    places = agent_checkpoints.FOLDER
    for step in runs.steps_of(tmp_path)[:0:-1]:
        shutil.rmtree(tmp_path / places / str(step))
        if runs.saved(tmp_path, "progress")[1]["progress"]["episode_halves"]["reports"]:
            break
    else:
        raise AssertionError("no episode waited at any checkpoint")
    oni_runs.train(tmp_path, config)
    assert (tmp_path / "episodes.jsonl").read_bytes() == lines


def learned_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics, less what is of the clock and of the machine."""
    kept = {"step", "loss", "policy", "value", "advantage", "optimizer", "reward", "batch", "lag", "episode"}
    return [
        {name: value for name, value in row.items() if name.split("/")[0] in kept}
        for row in read_metrics(folder)
    ]


def published_rows(folder: Path) -> list[dict[str, str]]:
    """The published log, less what is of the clock."""
    with (folder / "log.csv").open() as file:
        return [{**row, "FPS": "", "duration": ""} for row in csv.DictReader(file)]
