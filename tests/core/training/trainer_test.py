"""The offline trainer on a task that the package does not know: order, resume, guards, early stop."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.training.train_steps import FINITE, Carry, make_train_steps
from motif_jax.core.training.trainer import OfflineTrainer
from tests import bigrams, processes, resumed
from tests.core.training.subtraction import (
    Subtractor,
    evaluations_of,
    results_of,
    resume_points_of,
    subtracted,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def saved(folder: Path, which: str = "checkpoints") -> tuple[bigrams.State, dict, list]:
    """State, position and rows of the newest checkpoint."""
    state = bigrams.Bigrams(DataParallel(jax.local_devices()[:2])).init_state()
    with Checkpoints(folder / which, keep=None, read_only=True) as checkpoints:
        items = checkpoints.restore(None, {**state._asdict(), "position": JSON, "curve": JSON})
    return bigrams.State(items["logits"], items["opt_state"]), items["position"], items["curve"]["rows"]


KILLED = "import sys; from tests import bigrams; bigrams.main(*sys.argv[1:])"


@pytest.mark.slow
def test_a_task_from_outside_is_killed_and_ends_with_the_same_bits(tmp_path):
    processes.killed(KILLED, str(tmp_path / "killed"), "14")
    _, position, _ = saved(tmp_path / "killed", "resume")
    # The step that it died behind was being saved.
    assert position["step"] in (11, 14)
    assert (position["epoch"], position["step_in_epoch"]) == (1, position["step"] - 8)
    processes.killed(KILLED, str(tmp_path / "killed"), "19")
    done = resumed.saved_step(tmp_path / "killed")
    assert done >= 14

    with resumed.takes(20 - done):
        bigrams.main(str(tmp_path / "killed"))

    with resumed.takes(20):
        bigrams.main(str(tmp_path / "undisturbed"))
    state, position, rows = saved(tmp_path / "killed")
    expected_state, expected_position, expected_rows = saved(tmp_path / "undisturbed")
    chex.assert_trees_all_equal(state, expected_state)
    assert position == expected_position
    assert rows == expected_rows
    assert position["step"] == 20
    # The last epoch is shorter.
    assert [row["step"] for row in rows] == [0, 8, 16, 20]
    assert rows[-1]["validation/loss"] < rows[0]["validation/loss"] - 1
    lines = (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 8, 16, 20]


@pytest.mark.slow
def test_a_request_to_stop_waits_for_two_steps_and_not_for_a_chunk(tmp_path):
    parallel = DataParallel(jax.local_devices()[:1])
    task = bigrams.Bigrams(parallel)
    task.chunk_steps = 8
    step = task.guarded_step
    finished_steps = []

    def slow_step(*arguments):
        jax.debug.callback(lambda: finished_steps.append(time.sleep(0.05)))
        return step(*arguments)

    task.guarded_step = slow_step
    trainer = OfflineTrainer(task, parallel)
    train = trainer.train
    # Of each step that is started the number of those that have finished.
    finished_before = []

    def train_until_the_fifth(carry, batches):
        finished_before.append(len(finished_steps))
        if len(finished_before) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(carry, batches)

    trainer.train = train_until_the_fifth

    assert not trainer.run(tmp_path)

    assert len(finished_before) == 5
    in_flight = [started - finished for started, finished in enumerate(finished_before)]
    assert max(in_flight) <= 1


def test_a_run_evaluates_before_the_first_and_after_each_epoch(tmp_path, in_memory, capsys):
    """The sum that is left falls by 4 n + 1 in step n; seven steps in epochs of three."""
    task = Subtractor()

    assert subtracted(tmp_path, task)

    assert task.chunks == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1)]
    assert re.findall("^at .*$", capsys.readouterr().err, re.MULTILINE) == ["at 0", "at 3", "at 6", "at 7"]
    rows = evaluations_of(tmp_path)[3]["curve"]["rows"]
    assert [row["step"] for row in rows] == [0, 3, 6, 7]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row["validation/loss"] for row in rows] == [100, 85, 34, 9]


def test_means_of_an_evaluation_are_of_the_steps_before_it(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor())

    first, *rows = evaluations_of(tmp_path)[3]["curve"]["rows"]
    assert np.isnan(first["norm"])
    assert [row["norm"] for row in rows] == [(1 + 5 + 9) / 3, (13 + 17 + 21) / 3, 25]
    assert [row["loss"] for row in rows] == pytest.approx([(100 + 99 + 94) / 3, (85 + 72 + 55) / 3, 34])


def test_checkpoints_hold_state_position_items_and_config(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor(), config={"a": 1})

    evaluations = evaluations_of(tmp_path)
    assert sorted(evaluations) == [0, 1, 2, 3]
    items = evaluations[1]
    assert items["total"] == 85
    assert items["sums"].tolist() == [6, 9]
    assert items["about"] == {"sums": [6, 9]}
    assert items["config"] == {"a": 1}
    position = items["position"]
    assert (position["step"], position["epoch"], position["step_in_epoch"]) == (3, 1, 0)
    assert position["skipped"] == 0
    assert position["digests"] == {"the text": "a"}


def test_the_newest_resume_point_inside_an_epoch_remains(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor(), save_every_seconds=0)

    assert list(resume_points_of(tmp_path)) == [5]


def test_a_run_without_saves_inside_epochs_leaves_no_resume_point(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor())

    assert not resume_points_of(tmp_path)


def test_every_step_is_logged_before_the_evaluation_after_it(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor(), log_every_seconds=0.0)

    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7]
    losses = [line["logged/loss"] for line in lines if "logged/loss" in line]
    assert losses == [100, 99, 94, 85, 72, 55, 34]


def test_the_summary_names_the_best_and_the_used_evaluation(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor())

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["evaluations"], summary["best_evaluation"], summary["used_evaluation"]) == (4, 3, 3)
    assert summary["best"] == summary["used"] == summary["last"]
    assert summary["last"] == {"epoch": 3, "loss": 34, "norm": 25, "step": 7, "validation/loss": 9}
    assert (summary["steps_left_out"], summary["stopped_early"]) == (0, False)
    assert (tmp_path / "rows.txt").read_text() == "4"


# A run that is stopped at step 6, its last one, is at its end.
@pytest.mark.parametrize(
    ("stop_at", "done", "first_chunk"), [(0, 1, (0, 2)), (4, 4, (3, 2)), (2, 3, (3, 2)), (6, 7, None)]
)
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, in_memory, stop_at, done, first_chunk):
    """Behind the step that is under way, in the chunks of a run that was not stopped."""
    assert subtracted(tmp_path / "undisturbed", Subtractor())
    folder = tmp_path / "stopped"

    assert subtracted(folder, Subtractor(stop_at=stop_at)) == (done == 7)
    checkpoints = [*resume_points_of(folder).values(), *evaluations_of(folder).values()]
    assert max(items["position"]["step"] for items in checkpoints) == done

    resumed_task = Subtractor()
    assert subtracted(folder, resumed_task)
    assert next(iter(resumed_task.chunks), None) == first_chunk
    assert results_of(folder) == results_of(tmp_path / "undisturbed")


def test_the_first_step_that_is_not_finite_ends_a_run(tmp_path, in_memory):
    remedy = "with smaller numbers; --config.nonfinite.policy=skip continues without that step"

    with pytest.raises(UserError, match=rf"gradient_norm of step 1 not finite .*step-1\.npz\).*{remedy}"):
        subtracted(tmp_path, Subtractor([1, 4]), most_skips=0)

    [(step, items)] = resume_points_of(tmp_path).items()
    assert step == items["position"]["step"] == 1
    assert items["position"]["sums"] == {"steps": 1, "gradient_norm": 1, "loss": 100}


def test_more_steps_than_may_be_left_out_end_a_run(tmp_path, in_memory):
    spent = r"1 steps were left out already \(--config.nonfinite.most_skips=1\)"

    with pytest.raises(UserError, match=f"gradient_norm of step 4 not finite .*{spent}"):
        subtracted(tmp_path, Subtractor([1, 4]), most_skips=1)

    with np.load(tmp_path / "nonfinite" / "step-4.npz") as batch:
        arrays = {name: batch[name].tolist() for name in batch}
    np.testing.assert_equal(arrays, {"x": [8, np.nan], "loss": 77, "gradient_norm": np.nan})


def test_steps_that_are_not_finite_are_left_out_of_state_and_means(tmp_path, in_memory):
    assert subtracted(tmp_path, Subtractor([1, 4]), most_skips=2)

    newest = evaluations_of(tmp_path)[3]
    rows = newest["curve"]["rows"]
    # Without the 5 of step 1 and the 17 of step 4.
    assert [row["validation/loss"] for row in rows] == [100, 90, 56, 31]
    assert [row["norm"] for row in rows[1:]] == [5, 17, 25]
    assert newest["position"]["skipped"] == 2
    assert json.loads((tmp_path / "summary.json").read_text())["steps_left_out"] == 2


@pytest.mark.parametrize(("budget", "total"), [(1, 77), (2, 31)])
def test_compiled_steps_stop_where_the_budget_is_spent(budget, total):
    task = Subtractor([1, 4])
    carry = Carry(task.init_state(), np.int32(budget), None)

    carry, metrics = jax.jit(make_train_steps(task.guarded_step))(carry, task.batches(0, 7))

    assert (carry.skips_left, carry.state.total) == (budget - 2, total)
    assert metrics[FINITE].tolist() == [1, 0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("patience", "steps", "aim", "best", "remaining"), [(1, 7, 92.5, 0, [0, 1]), (0, 3, 0, 1, [1])]
)
def test_early_stop_uses_the_best_evaluation(tmp_path, patience, steps, aim, best, remaining):
    """The newest remains, and the first of equally good ones."""
    task = Subtractor(aim=aim)
    task.steps = steps

    assert subtracted(tmp_path, task, patience=patience, keep=1)

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["stopped_early"] == (patience == 1)
    assert summary["evaluations"] == 2
    assert summary["best_evaluation"] == summary["used_evaluation"] == best
    assert summary["best"]["step"] == summary["used"]["step"] == 3 * best
    assert summary["last"]["step"] == 3
    with Checkpoints(tmp_path / "checkpoints", keep=None, read_only=True) as checkpoints:
        assert checkpoints.steps() == remaining
        assert checkpoints.restore(1, {"about": JSON})["about"] == {"sums": [6, 9]}
