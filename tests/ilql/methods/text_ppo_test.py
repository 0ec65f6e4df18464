"""Numbers that a training by PPO of free text measures, logs and shows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.training.task import TrainingPosition
from motif_jax.ilql.agent.agent_start import Start
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods.text_ppo import PpoTraining
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section
from tests.ilql.methods.text_objective_test import objective_of
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def task() -> PpoTraining:
    objective = objective_of("ppo")
    values = {"batch_size": 15, "games.episodes": 4, "ppo.kl.coefficient": 0.0}
    config = read_section(TextConfig, load_config("train_text", "wordle_ppo", values))
    trunks = jax.device_get(objective.agent.init(jax.random.key(0)))["trunks"]
    start = Start(learned={"trunks": trunks}, target={}, frozen={}, digests={})
    data = TrainingData(None, None, {}, "episodes")
    task = PpoTraining(config, objective, start, 2, data, DataParallel(jax.local_devices()[:1]))
    task.play = lambda params: {"games/return": -1.5, "games/won": 0.5}
    return task


def test_an_evaluation_is_the_return_of_its_episodes(task: PpoTraining) -> None:
    state = task.parallel.replicate(task.init_state())
    sums = {"steps": 4.0, "loss": 6.0, "gradient_norm": 2.0}

    evaluation = task.evaluate(state, None, TrainingPosition(step=6, sums=sums))

    expected = {
        # The smallest value is the best.
        "games/negative_return": 1.5,
        "games/return": -1.5,
        "games/won": 0.5,
        "loss": 1.5,
        "gradient_norm": 0.5,
        "train/episodes": 6 * 15,
    }
    assert {name: evaluation.row[name] for name in expected} == expected
    assert evaluation.text == "step 6: return -1.5000 (4 episodes)"


def test_the_log_has_means_and_tokens_a_second(task: PpoTraining) -> None:
    metrics: Any = {"batch/tokens": np.array([3, 4]), "value": np.array([1, 2])}

    row = task.logged(metrics, seconds=2.0)

    assert row == {"batch/tokens": 3.5, "value": 1.5, "throughput/tokens_per_second": 3.5}


def test_there_is_nothing_to_show_before_the_first_step(task: PpoTraining) -> None:
    assert task.shown({}) == {}


def test_the_progress_line_shows_the_return(task: PpoTraining) -> None:
    assert task.shown({"episode/return": 6.0, "steps": 4.0}) == {"return": 1.5}
