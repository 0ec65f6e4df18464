"""Numbers that a training of a language model measures, logs and shows."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.training.gradient_sums import Sums
from motif_jax.core.training.task import TrainingPosition
from motif_jax.lm.pretrain_language_model import LanguageTask, perplexity
from motif_jax.lm.sums_task import TrainingData
from motif_jax.lm.training_config import LanguageModelConfig
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config

LENGTH = 5
BATCH_SIZE = 4


def sums_of_rows(learned: Any, frozen: Any, batch: Any, key: Any) -> Sums:
    """The sums of a batch that holds them: float32 [B, 3 or 4]."""
    return Sums(*batch.sum(axis=0))


class Batches:
    """Held-out batches, and training batches whose numbers count up."""

    steps_per_pass = 4

    def __init__(self, held_out: list[Any]) -> None:
        self._held_out = [np.array(batch, np.float32) for batch in held_out]

    def all_batches(self, max_batches: int) -> list[np.ndarray]:
        return self._held_out[:max_batches]

    def batches(self, first: int, count: int) -> np.ndarray:
        return np.arange(count * BATCH_SIZE).reshape(count, BATCH_SIZE) + first


def task_of(*held_out: Any) -> LanguageTask:
    values = {"length": LENGTH, "batch_size": BATCH_SIZE, "accumulate": 2}
    config = read_section(
        LanguageModelConfig, load_config("pretrain_language_model", "smoke", values)
    )
    batches = Batches(list(held_out))
    data = TrainingData(batches, batches, {}, "texts")
    parameters = ({"weight": np.zeros(2, np.float32)}, None)
    return LanguageTask(
        config, sums_of_rows, parameters, data, DataParallel(jax.local_devices()[:1]), 8
    )


def test_units_are_tokens() -> None:
    assert task_of().units(7) == 7 * BATCH_SIZE * LENGTH


def test_batches_are_divided_into_micro_batches() -> None:
    batches = task_of().batches(5, 3)

    assert batches.shape == (3, 2, BATCH_SIZE // 2)
    assert batches.reshape(-1).tolist() == list(range(5, 17))


def test_means_of_steps_are_weighted_by_their_tokens() -> None:
    metrics = {
        "tokens": np.array([2, 6], np.float32),
        "loss": np.array([3, 5], np.float32),
        "accuracy": np.array([0.5, 1], np.float32),
        "gradient_norm": np.array([1, 2], np.float32),
    }

    sums = task_of().tally(metrics)

    assert sums == {"steps": 2, "tokens": 8, "loss": 36, "accuracy": 7, "gradient_norm": 3}


def test_the_progress_line_shows_the_loss_a_token() -> None:
    shown = task_of().shown({"steps": 4.0, "loss": 6.0, "tokens": 8.0})

    assert shown == {"loss": 0.75, "perplexity": math.exp(0.75)}
    assert task_of().shown({}) == {}


# Each row: loss, weight, correct, and what `correct` is counted over.
TWO_BATCHES = ([[1.0, 1.0, 0.0]] * 4, [[2.0, 1.0, 1.0]] * 4)


def test_held_out_means_are_of_all_batches() -> None:
    means = task_of(*TWO_BATCHES).held_out(*state_of(), TrainingPosition())

    assert means == (1.5, 0.5, 8.0)


def test_correct_targets_may_have_their_own_count() -> None:
    rows = [[2.0, 1.0, 1.0, 2.0]] * 4

    means = task_of(rows).held_out(*state_of(), TrainingPosition())

    assert means == (2.0, 0.5, 8.0)


def test_a_held_out_loss_of_nan_ends_the_training() -> None:
    rows = [[math.inf, 1.0, 1.0]] * 4
    message = (
        "the training diverged: the held-out loss after step 5 not finite; .* a smaller --config"
    )

    with pytest.raises(UserError, match=message):
        task_of(rows).held_out(*state_of(), TrainingPosition(step=5))


def state_of() -> tuple[Any, Any]:
    """The state of a task before the first step, on one device, and no shared arrays."""
    task = task_of()
    return task.parallel.replicate(task.init_state()), None


def test_an_evaluation_measures_both_parts_a_token() -> None:
    position = TrainingPosition(
        step=6,
        sums={"steps": 4.0, "loss": 6.0, "accuracy": 1.0, "tokens": 8.0, "gradient_norm": 2.0},
    )

    evaluation = task_of(*TWO_BATCHES).evaluate(*state_of(), position)

    expected = {
        "validation/loss": 1.5,
        "validation/perplexity": math.exp(1.5),
        "validation/accuracy": 0.5,
        "validation/tokens": 8,
        "train/loss": 0.75,
        "train/perplexity": math.exp(0.75),
        "train/accuracy": 0.125,
        "train/tokens": 6 * BATCH_SIZE * LENGTH,
        "train/passes": 1.5,
        "train/gradient_norm": 0.5,
    }
    assert {name: evaluation.row[name] for name in expected} == expected
    assert evaluation.text == "step 6: perplexity 4.48 on 8 held-out tokens"


def test_an_overflowing_perplexity_is_infinite() -> None:
    assert perplexity(0.5) == math.exp(0.5)
    assert math.isfinite(perplexity(700.0))
    assert perplexity(701.0) == math.inf
