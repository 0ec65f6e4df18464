from __future__ import annotations

import math

from motif_jax.core.training.task import TrainingPosition


def test_the_evaluation_before_the_first_step_is_no_epoch() -> None:
    assert TrainingPosition().epoch == 0
    assert TrainingPosition(rows=[{}]).epoch == 0
    assert TrainingPosition(rows=[{}, {}]).epoch == 1


def test_sums_are_added_and_divided() -> None:
    position = TrainingPosition(sums={"steps": 4.0, "tokens": 8.0, "loss": 6.0})

    position.add({"loss": 2, "new": 3})

    assert position.sums == {"steps": 4.0, "tokens": 8.0, "loss": 8.0, "new": 3.0}
    assert position.mean("loss") == 2.0
    assert position.mean("loss", "tokens") == 1.0


def test_there_is_no_mean_before_the_first_step() -> None:
    assert math.isnan(TrainingPosition().mean("loss"))


def test_the_learning_rate_is_that_of_the_last_step() -> None:
    assert TrainingPosition(step=6).learning_rate(lambda step: 10 * step) == 50.0
    assert math.isnan(TrainingPosition().learning_rate(lambda step: 10 * step))
