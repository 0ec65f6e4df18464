from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.devices.parallel import AXIS, DataParallel
from motif_jax.core.training.run_files import DEVICES
from motif_jax.core.training.task import TrainingPosition
from motif_jax.ilql import methods
from motif_jax.ilql.config import TextConfig
from motif_jax.ilql.objective import CountedBatch, Objective
from motif_jax.ilql.text_task import TextTraining
from motif_jax.lm.sums_task import TrainingData
from motif_jax.schema import read_section
from tests.ilql.objective_test import batch_of, objective_of, parameters
from tests.reward_fixtures import load_config


class HeldOut(NamedTuple):
    """Batches to measure with."""

    batches: Sequence[methods.TextBatch]

    def all_batches(self, max_batches: int) -> Sequence[methods.TextBatch]:
        return self.batches[:max_batches]


def task_of(
    objective: Objective,
    params: Any = ({}, {}, {}),
    devices: int = 1,
    held_out: Sequence[methods.TextBatch] = (),
    **changes: Any,
) -> TextTraining:
    config = read_section(
        TextConfig, load_config("train_text", "wordle_ilql", {"batch_size": 3, **changes})
    )
    data = TrainingData(None, HeldOut(held_out), {"train": "some"}, "")
    return TextTraining(
        config, objective, params, data, DataParallel(jax.local_devices()[:devices])
    )


def test_dropout_pins_the_number_of_devices() -> None:
    for dropout, pinned in ((0.0, {}), (0.1, {DEVICES: "2"})):
        task = task_of(objective_of("bc"), devices=2, dropout=dropout)
        assert task.digests == {"train": "some", **pinned}


@pytest.mark.slow
def test_a_loss_is_averaged_over_actions_or_micro_batches() -> None:
    """Three dialogues of unequal numbers of actions, a micro-batch each."""
    objective = objective_of("bc")
    batch = batch_of()
    learned, _, _ = parameters(objective, batch)
    rows = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(3)]
    counts = [objective.counts(row) for row in rows]
    terms = jax.jit(lambda part: objective.terms(learned, {}, part, None).loss)
    losses = [
        float(terms(CountedBatch(*row_and_counts)))
        for row_and_counts in zip(rows, counts, strict=True)
    ]
    by_actions = np.average(losses, weights=[float(count.policy) for count in counts])
    for average, loss in (("batch", by_actions), ("micro_batch", np.mean(losses))):
        task = task_of(objective, (learned, {}, {}), accumulate=3, average=average)
        state = task.init_state()
        micro = jax.tree.map(lambda leaf: leaf[None, :, None], batch)
        step = jax.jit(jax.vmap(lambda part: task.step(state, None, part)[1], axis_name=AXIS))  # noqa: B023
        np.testing.assert_allclose(step(micro)["loss"][0], loss, rtol=1e-5)


@pytest.mark.extra
@pytest.mark.parametrize("average", ["batch", "micro_batch"])
def test_micro_batches_give_held_out_means_in_less_memory(average: str) -> None:
    objective = objective_of("ilql")
    batch = batch_of()
    learned, frozen, _ = parameters(objective, batch)
    measured = []
    memory = []
    for parts in (1, 3):
        params = (learned, frozen["target"], {})
        task = task_of(objective, params, accumulate=parts, average=average)
        state = task.parallel.replicate(params)
        program = jax.jit(jax.vmap(task.measure_core, in_axes=(None, 0), axis_name=AXIS))
        one = jax.tree.map(lambda leaf: leaf[None], batch)
        measured.append(jax.device_get(program(state, one)))
        memory.append(program.lower(state, one).compile().memory_analysis().temp_size_in_bytes)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), *measured)
    assert memory[1] < 0.7 * memory[0]


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_no_state() -> None:
    objective = objective_of("ilql")
    batch = batch_of()
    learned, frozen, _ = parameters(objective, batch)
    task = task_of(objective, (learned, frozen["target"], {}), accumulate=1)
    state = task.init_state()
    micro = jax.tree.map(lambda leaf: leaf[None, None], batch)
    step = jax.jit(
        jax.vmap(lambda part: task.guarded_step(state, None, part, True), axis_name=AXIS)
    )
    for rewards, changes in ((micro.rewards, True), (micro.rewards * jnp.nan, False)):
        new, _, finite = step(micro._replace(rewards=rewards))
        assert bool(finite[0]) == changes
        for part, before in zip(new, state, strict=True):
            same = jax.tree.map(lambda a, b: np.array_equal(a[0], b), part, before)
            assert all(jax.tree.leaves(same)) == (not changes)


def test_a_log_row_has_its_steps_means_and_extremes() -> None:
    metrics = {
        "tokens": np.array([2, 6], np.float32),
        "loss": np.array([3, 5], np.float32),
        "q_min": np.array([3, -1], np.float32),
        "q_max": np.array([2, 9], np.float32),
    }

    row = task_of(objective_of("bc")).logged(metrics, seconds=2.0)

    assert row == {
        "train/loss": 4.0,
        "train/q_min": -1.0,
        "train/q_max": 9.0,
        "throughput/tokens_per_second": 4.0,
    }


@pytest.mark.slow
def test_an_evaluation_is_the_loss_of_all_held_out_dialogues() -> None:
    """Held-out batches of unequal numbers of actions count by their actions, and the policy's term
    by its tokens.
    """
    objective = objective_of("ilql")
    batch = batch_of()
    learned, frozen, part = parameters(objective, batch)
    rows = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(3)]
    params = (learned, frozen["target"], {})
    sizes = {"accumulate": 1, "batch_size": 1, "evaluation_batches": len(rows)}
    task = task_of(objective, params, held_out=rows, **sizes)
    state = task.parallel.replicate(task.init_state())
    position = TrainingPosition(
        step=6,
        sums={
            "steps": 4.0,
            "loss": 6.0,
            "q": 2.0,
            "v": 3.0,
            "policy": 4.0,
            "conservative": 5.0,
            "gradient_norm": 2.0,
        },
    )

    row = task.evaluate(state, None, position).row

    expected = jax.jit(objective.terms)(learned, frozen, part, None)
    for name in ("loss", "q", "v", "policy", "conservative"):
        np.testing.assert_allclose(row[f"validation/{name}"], getattr(expected, name), rtol=1e-4)
    trained = {"loss": 1.5, "q": 0.5, "v": 0.75, "policy": 1.0, "conservative": 1.25}
    assert {name: row[f"train/{name}"] for name in trained} == trained
    assert row["train/dialogues"] == 6
    # The margin term has no weight.
    assert "validation/margin" not in row
