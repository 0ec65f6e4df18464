from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.training.records import DEVICES
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.methods import implicit_q
from motif_jax.ilql.methods.text_objective import Objective, Part
from motif_jax.ilql.text_task import TextTraining
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section
from tests.ilql.methods.text_objective_test import batch_of, objective_of, parameters
from tests.reward_fixtures import load_config

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def task_of(
    objective: Objective, given: Any = ({}, {}, {}), devices: int = 1, **changes: Any
) -> TextTraining:
    config = read_section(TextConfig, load_config("train_text", "wordle_ilql", {"batch_size": 3, **changes}))
    batches: Any = SimpleNamespace(whole=lambda most: [])
    data = TrainingData(None, batches, {"train": "some"}, "")
    return TextTraining(config, objective, given, data, DataParallel(jax.local_devices()[:devices]))


def test_the_number_of_devices_is_kept_where_dropout_follows_from_it() -> None:
    for dropout, kept in ((False, {}), (True, {DEVICES: "2"})):
        task = task_of(dataclasses.replace(objective_of("bc"), dropout=dropout), devices=2)
        assert task.digests == {"train": "some", **kept}


@pytest.mark.slow
def test_a_step_is_the_mean_of_its_actions_and_published_of_its_micro_batches_means() -> None:
    """Three dialogues of unequal numbers of actions, a micro-batch each."""
    objective, batch = objective_of("bc"), batch_of()
    learned, _, _ = parameters(objective, batch)
    rows = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(3)]
    counts = [implicit_q.Counts(*implicit_q.counts(row, objective.settings)) for row in rows]
    terms = jax.jit(lambda part: objective.terms(learned, {}, part, None).loss)
    losses = [float(terms(Part(*each))) for each in zip(rows, counts, strict=True)]
    by_actions = np.average(losses, weights=[float(count.policy) for count in counts])
    for average, loss in (("batch", by_actions), ("micro_batch", np.mean(losses))):
        task = task_of(objective, (learned, {}, {}), accumulate=3, average=average)
        state, micro = task.init_state(), jax.tree.map(lambda leaf: leaf[None, :, None], batch)
        step = jax.jit(jax.vmap(lambda part: task.step(state, None, part)[1], axis_name=AXIS))  # noqa: B023
        np.testing.assert_allclose(step(micro)["loss"][0], loss, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("average", ["batch", "micro_batch"])
def test_held_out_means_are_those_of_the_batch_in_less_memory(average: str) -> None:
    objective, batch = objective_of("ilql"), batch_of()
    learned, frozen, _ = parameters(objective, batch)
    measured, memory = [], []
    for parts in (1, 3):
        given = (learned, frozen["target"], {})
        task = task_of(objective, given, accumulate=parts, average=average)
        state = task.parallel.replicate(given)
        program = jax.jit(jax.vmap(task._measure_core, in_axes=(None, 0), axis_name=AXIS))
        one = jax.tree.map(lambda leaf: leaf[None], batch)
        measured.append(jax.device_get(program(state, one)))
        memory.append(program.lower(state, one).compile().memory_analysis().temp_size_in_bytes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), *measured)
    assert memory[1] < 0.7 * memory[0]


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_no_parameter_no_target_and_no_moment() -> None:
    objective, batch = objective_of("ilql"), batch_of()
    learned, frozen, _ = parameters(objective, batch)
    task = task_of(objective, (learned, frozen["target"], {}), accumulate=1)
    state, micro = task.init_state(), jax.tree.map(lambda leaf: leaf[None, None], batch)
    step = jax.jit(jax.vmap(lambda part: task.guarded_step(state, None, part, True), axis_name=AXIS))
    for rewards, changes in ((micro.rewards, True), (micro.rewards * jnp.nan, False)):
        new, _, finite = step(micro._replace(rewards=rewards))
        assert bool(finite[0]) == changes
        for part, before in zip(new, state, strict=True):
            same = jax.tree.map(lambda a, b: np.array_equal(a[0], b), part, before)
            assert all(jax.tree.leaves(same)) == (not changes)
