"""The task of a text agent's training: what a step of several micro-batches is the mean of."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.algorithms import implicit_q
from motif_jax.algorithms import spread as spreads
from motif_jax.algorithms.implicit_q import Counts
from motif_jax.algorithms.spread import spread
from motif_jax.devices.parallel import AXIS, DataParallel
from motif_jax.trainers.sums_task import TrainingData
from motif_jax.trainers.task import DEVICES
from motif_jax.trainers.text_objective import Objective, Part
from motif_jax.trainers.text_task import TextTraining
from tests.reward_fixtures import load_config
from tests.trainers.text_objective_test import batch_of, objective_of, parameters

pytestmark = pytest.mark.usefixtures("compiled_quickly")


class Nothing:
    """Of a training whose batches are given."""

    def whole(self, most: int) -> list[Any]:
        return []


def task_of(
    objective: Objective, parameters: tuple[Any, Any, Any] = ({}, {}, {}), devices: int = 1, **changes: Any
) -> TextTraining:
    config = load_config("train_text", "wordle_ilql")
    config.update({"batch_size": 3, **changes})
    data, parallel = (
        TrainingData(None, Nothing(), {"train": "some"}, ""),
        DataParallel(jax.local_devices()[:devices]),
    )
    return TextTraining(config, objective, parameters, data, parallel)


@pytest.mark.parametrize(("dropout", "kept"), [(False, {}), (True, {DEVICES: "2"})])
def test_the_number_of_devices_is_kept_where_dropout_follows_from_it(
    dropout: bool, kept: dict[str, str]
) -> None:
    task = task_of(dataclasses.replace(objective_of("bc"), dropout=dropout), devices=2)
    assert task.digests == {"train": "some", **kept}


def test_ranges_are_those_of_all_micro_batches_and_devices() -> None:
    """Two devices with two micro-batches of three numbers each; in the last one no number counts."""

    def of(values: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
        parts = [{"x": spread(v, m), "n": v.sum()} for v, m in zip(values, mask, strict=True)]
        return spreads.over_devices(spreads.added(*parts), AXIS)

    values = jnp.arange(12.0).reshape(2, 2, 3) - 2
    mask = (values > -1) & (values < 5) & (values != 3)
    found = jax.vmap(of, axis_name=AXIS)(values, mask)
    counted = values[mask]
    means = spreads.named({"x": jax.tree.map(lambda leaf: leaf[0], found["x"])})
    wanted = {"x_mean": counted.mean(), "x_min": counted.min(), "x_max": counted.max()}
    assert {name: float(x) for name, x in means.items()} == {name: float(x) for name, x in wanted.items()}
    assert float(found["n"][0]) == float(values.sum())
    nothing = spreads.named({"x": spread(values, jnp.zeros_like(mask))})
    assert {float(x) for x in nothing.values()} == {0.0}


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
    for average, loss in wanted.items():
        task = task_of(objective, (learned, {}, {}), accumulate=3, average=average)
        state, micro = task.init_state(), jax.tree.map(lambda leaf: leaf[None, :, None], batch)
        step = jax.jit(jax.vmap(lambda part: task.step(state, None, part)[1], axis_name=AXIS))  # noqa: B023
        np.testing.assert_allclose(step(micro)["loss"][0], loss, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("average", ["batch", "micro_batch"])
def test_held_out_means_are_those_of_the_batch_in_less_memory(average: str) -> None:
    """The same three dialogues as one micro-batch and as three."""
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
        parts = zip(new, state, strict=True)
        same = [
            all(np.array_equal(a[0], b) for a, b in zip(*map(jax.tree.leaves, part), strict=True))
            for part in parts
        ]
        assert same == [not changes] * len(state)
