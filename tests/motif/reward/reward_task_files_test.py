"""Numbers that a training of a reward measures, and the published files that it writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.motif.reward import reward_task
from motif_jax.motif.reward.reward_task import QUANTILE_LEVELS, RewardTask
from tests.motif.reward.reward_task_test import make_task
from tests.reward_fixtures import make_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    make_dataset(folder, pairs=70, length=2)
    return folder


@pytest.fixture(scope="module")
def task(folder: Path) -> RewardTask:
    return make_task(folder, batch_size=16)


def test_units_are_pairs_of_which_the_last_batch_has_fewer(task: RewardTask) -> None:
    pairs = task.data.train.size
    steps = task.plan.steps_per_pass

    units = [task.units(step) for step in range(2 * steps + 1)]

    assert units[1] == 16
    assert (units[steps], units[2 * steps]) == (pairs, 2 * pairs)
    assert max(np.diff(units)) == 16


def test_accuracies_are_summed_over_batches_with_counted_pairs(task: RewardTask) -> None:
    metrics = {
        "counted": np.array([3, 0]),
        "pairs": np.array([4, 5]),
        "loss": np.array([0.5, 1.5]),
        "accuracy": np.array([0.75, 0.5]),
        "gradient_norm": np.array([2, 3]),
    }

    sums = task.tally(metrics)

    assert sums == {
        "batches": 2,
        "loss": 2.0,
        "accuracy_batches": 1,
        "accuracy": 0.75,
        "gradient_norm": 5.0,
        "loss_pairs": 9,
        "accuracy_pairs": 3,
    }
    assert task.shown(sums) == {"loss": 1.0, "accuracy": 0.75}


def row(epoch: int) -> dict[str, Any]:
    quantiles = {
        f"reward/quantile_{round(100 * level):02d}": level * 3.14159 for level in QUANTILE_LEVELS
    }
    return {
        "epoch": epoch,
        "train/loss": 1.0,
        "train/accuracy": 0.75,
        "csv_validation_loss": 0.25,
        "csv_score_accuracy": 0.125,
        "csv_validation_accuracy": math.nan,
        **quantiles,
    }


def test_published_files_have_a_line_an_epoch(task: RewardTask, tmp_path: Path) -> None:
    task.write(tmp_path, [row(0), row(1)])

    # Nothing was trained before the first evaluation.
    train = (tmp_path / reward_task.TRAIN_CSV).read_text()
    assert train == "epoch,total_train_loss,total_train_acc\n1,1.0,0.75\n"
    validation = (tmp_path / reward_task.VALIDATION_CSV).read_text()
    assert validation == (
        "iter,total_val_loss,score_validation_accs,validation_accs\n0,0.25,0.125,\n1,0.25,0.125,\n"
    )


@pytest.mark.parametrize(("rounded", "first"), [(False, "0.1570795"), (True, "0.16")])
def test_published_quantiles_may_have_two_decimals(
    folder: Path, tmp_path: Path, rounded: bool, first: str
) -> None:
    task = make_task(folder, **{"compat.quantile_two_decimals": rounded})

    task.write(tmp_path, [row(0)])

    levels, quantiles = (tmp_path / reward_task.QUANTILES_CSV).read_text().splitlines()
    assert levels.split(",") == [f"{level:.2f}" for level in QUANTILE_LEVELS]
    assert quantiles.split(",")[0] == first
    assert [float(value) for value in quantiles.split(",")] == pytest.approx(
        [level * 3.14159 for level in QUANTILE_LEVELS], abs=0.005 if rounded else 1e-12
    )
