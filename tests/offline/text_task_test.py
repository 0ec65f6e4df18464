"""The task of a text agent's training: what a step of several micro-batches is the mean of."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.algorithms import implicit_q
from motif_jax.algorithms.implicit_q import Counts
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.language.targets import Following
from motif_jax.offline.task import DEVICES
from motif_jax.offline.text_objective import Part
from motif_jax.offline.text_task import TextTraining
from tests.offline.text_objective_test import batch_of, objective_of, parameters
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


class Nothing:
    """Of a training whose batches are given."""

    batch_size = steps_per_pass = 1

    def batches(self, first: int, count: int) -> Any:
        raise AssertionError

    def whole(self, most: int) -> list[Any]:
        return []


def test_the_number_of_devices_is_kept_where_dropout_follows_from_it() -> None:
    objective, given = objective_of("bc"), (Following(), Nothing(), Nothing())
    config = load_config("train_text", "wordle_bc")
    for dropout, found in ((False, None), (True, "2")):
        made = dataclasses.replace(objective, dropout=dropout)
        parallel = DataParallel(jax.local_devices()[:2])
        task = TextTraining(config, made, {}, {}, {}, *given, parallel, {"train": "some"}, "none")
        assert task.digests.get(DEVICES) == found
        assert task.digests["train"] == "some"


@pytest.mark.slow
def test_a_step_is_the_mean_of_its_actions_and_published_of_its_micro_batches_means() -> None:
    """Three dialogues of unequal numbers of actions, a micro-batch each."""
    objective, batch = objective_of("bc"), batch_of()
    learned, _, _ = parameters(objective, batch)
    rows = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(3)]
    counts = [Counts(*implicit_q.counts(row, objective.settings)) for row in rows]
    terms = jax.jit(lambda part: objective.terms(learned, {}, part, None).loss)
    losses = [float(terms(Part(*each))) for each in zip(rows, counts, strict=True)]
    actions = [float(count.policy) for count in counts]
    assert len(set(actions)) > 1
    wanted = {"batch": np.average(losses, weights=actions), "micro_batch": np.mean(losses)}
    config = load_config("train_text", "wordle_bc")
    config.update({"batch_size": 3, "accumulate": 3})
    for average, loss in wanted.items():
        config.average = average
        parallel = DataParallel(jax.local_devices()[:1])
        task = TextTraining(
            config, objective, learned, {}, {}, Following(), Nothing(), Nothing(), parallel, {}, "none"
        )
        state, micro = task.init_state(), jax.tree.map(lambda leaf: leaf[None, :, None], batch)
        step = jax.jit(jax.vmap(lambda part: task.step(state, None, part)[1], axis_name=AXIS))  # noqa: B023
        np.testing.assert_allclose(step(micro)["loss"][0], loss, rtol=1e-5)
