"""The offline trainer on a task that the package does not know: order, means, files, resume,
guards, early stop.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax.core.checkpoints import JSON, Checkpoints
from motif_jax.core.errors import UserError
from motif_jax.core.metrics import read_metrics
from motif_jax.core.training import trainer
from motif_jax.core.training.run_files import RunFiles
from motif_jax.core.training.trainer import FINITE, Carry, make_train_steps
from motif_jax.ilql.config import TextConfig
from motif_jax.schema import read_section
from tests.core.training.subtraction import (
    Subtractor,
    evaluations_of,
    outcome_of,
    resume_points_of,
    train,
)
from tests.reward_fixtures import load_config


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture
def finished_run(tmp_path: Path, file_checkpoints: None) -> Path:
    """The folder of a run of seven steps in epochs of three, in which n takes 4 n + 1 from a
    hundred.
    """
    is_done = train(tmp_path, Subtractor(), plain_config={"a": 1}, log_every_seconds=0.0)
    assert is_done
    return tmp_path


@pytest.mark.usefixtures("file_checkpoints")
def test_no_chunk_of_steps_crosses_an_evaluation(tmp_path: Path) -> None:
    task = Subtractor()

    train(tmp_path, task)

    assert task.chunks == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1)]


def test_a_run_evaluates_before_the_first_and_after_each_epoch(finished_run: Path) -> None:
    rows = evaluations_of(finished_run)[3]["curve"]["rows"]

    assert [row["step"] for row in rows] == [0, 3, 6, 7]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row["validation/loss"] for row in rows] == [100, 85, 34, 9]


def test_means_of_an_evaluation_are_of_the_steps_before_it(finished_run: Path) -> None:
    first, *rows = evaluations_of(finished_run)[3]["curve"]["rows"]

    assert np.isnan(first["norm"])
    assert [row["norm"] for row in rows] == [(1 + 5 + 9) / 3, (13 + 17 + 21) / 3, 25]
    assert [row["loss"] for row in rows] == pytest.approx(
        [(100 + 99 + 94) / 3, (85 + 72 + 55) / 3, 34]
    )


def test_each_evaluation_has_a_checkpoint_of_its_state(finished_run: Path) -> None:
    evaluations = evaluations_of(finished_run)

    assert sorted(evaluations) == [0, 1, 2, 3]
    assert evaluations[1]["total"] == 85
    assert evaluations[1]["sums"].tolist() == [6, 9]


def test_a_checkpoint_holds_the_evaluations_items_and_the_config(finished_run: Path) -> None:
    items = evaluations_of(finished_run)[1]

    assert items["about"] == {"sums": [6, 9]}
    assert items["config"] == {"a": 1}


def test_a_checkpoint_holds_the_position_and_the_datas_digests(finished_run: Path) -> None:
    position = evaluations_of(finished_run)[1]["position"]

    assert (position["step"], position["epoch"], position["step_in_epoch"]) == (3, 1, 0)
    assert position["skipped"] == 0
    assert position["digests"] == {"the text": "a"}


@pytest.mark.usefixtures("file_checkpoints")
def test_the_newest_resume_point_inside_an_epoch_remains(tmp_path: Path) -> None:
    train(tmp_path, Subtractor(), save_every_seconds=0)

    assert list(resume_points_of(tmp_path)) == [5]


def test_a_run_without_saves_inside_epochs_leaves_no_resume_point(finished_run: Path) -> None:
    assert not resume_points_of(finished_run)


def test_every_step_is_logged_before_the_evaluation_after_it(finished_run: Path) -> None:
    rows = list(read_metrics(finished_run))

    assert [row["step"] for row in rows] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7]
    losses = [row["logged/loss"] for row in rows if "logged/loss" in row]
    assert losses == [100, 99, 94, 85, 72, 55, 34]


def test_the_summary_names_the_best_and_the_used_evaluation(finished_run: Path) -> None:
    summary = summary_of(finished_run)

    assert (summary["evaluations"], summary["best_evaluation"], summary["used_evaluation"]) == (
        4,
        3,
        3,
    )
    assert summary["last"] == {"epoch": 3, "loss": 34, "norm": 25, "step": 7, "validation/loss": 9}
    assert summary["best"] == summary["used"] == summary["last"]


def test_the_summary_of_an_undisturbed_run_counts_no_skips(finished_run: Path) -> None:
    summary = summary_of(finished_run)

    assert summary["steps_left_out"] == 0
    assert summary["stopped_early"] is False


def test_a_task_writes_its_own_files_after_the_evaluations(finished_run: Path) -> None:
    assert (finished_run / "rows.txt").read_text() == "4"


# A run that is asked to stop in its last step, 6, is at its end.
@pytest.mark.usefixtures("file_checkpoints")
@pytest.mark.parametrize(
    ("stop_at", "step", "is_done"), [(0, 1, False), (4, 4, False), (2, 3, False), (6, 7, True)]
)
def test_a_stopped_run_saves_the_step_under_way(
    tmp_path: Path, stop_at: int, step: int, is_done: bool
) -> None:
    assert train(tmp_path, Subtractor(stop_at=stop_at)) == is_done

    checkpoints = [*resume_points_of(tmp_path).values(), *evaluations_of(tmp_path).values()]
    assert max(items["position"]["step"] for items in checkpoints) == step


@pytest.mark.usefixtures("file_checkpoints")
@pytest.mark.parametrize(("stop_at", "first_chunk"), [(0, (0, 2)), (4, (3, 2)), (2, (3, 2))])
def test_a_resumed_run_takes_the_chunks_of_an_undisturbed_one(
    tmp_path: Path, stop_at: int, first_chunk: tuple[int, int]
) -> None:
    """Shapes of batches, and with them dropout, may depend on the chunk."""
    train(tmp_path, Subtractor(stop_at=stop_at))
    task = Subtractor()

    train(tmp_path, task)

    assert task.chunks[0] == first_chunk


@pytest.mark.usefixtures("file_checkpoints")
@pytest.mark.parametrize("stop_at", [0, 2, 4, 6])
def test_a_resumed_run_ends_as_an_undisturbed_one(tmp_path: Path, stop_at: int) -> None:
    undisturbed = tmp_path / "undisturbed"
    stopped = tmp_path / "stopped"
    train(undisturbed, Subtractor())
    train(stopped, Subtractor(stop_at=stop_at))

    assert train(stopped, Subtractor())

    np.testing.assert_equal(outcome_of(stopped), outcome_of(undisturbed))


@pytest.mark.usefixtures("file_checkpoints")
def test_a_resumed_run_says_at_which_step_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, Subtractor(stop_at=4))
    assert "goes on" not in capsys.readouterr().err

    train(tmp_path, Subtractor())

    assert "goes on at step 4 of 7" in capsys.readouterr().err


def test_a_finished_run_takes_no_step_when_started_again(
    finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Subtractor()

    assert train(finished_run, task)

    assert not task.chunks
    assert "goes on" not in capsys.readouterr().err


@pytest.mark.usefixtures("file_checkpoints")
def test_the_first_step_that_is_not_finite_ends_a_run(tmp_path: Path) -> None:
    remedy = "with smaller numbers; --config.nonfinite.policy=skip continues without that step"

    with pytest.raises(
        UserError, match=rf"gradient_norm of step 1 not finite .*step-1\.npz\).*{remedy}"
    ):
        train(tmp_path, Subtractor(poisoned=[1, 4]), most_skips=0)


@pytest.mark.usefixtures("file_checkpoints")
def test_a_diverged_run_saves_the_steps_before(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gradient_norm of step 1 not finite"):
        train(tmp_path, Subtractor(poisoned=[1, 4]), most_skips=0)

    [(step, items)] = resume_points_of(tmp_path).items()
    assert step == items["position"]["step"] == 1
    assert items["position"]["sums"] == {"steps": 1, "gradient_norm": 1, "loss": 100}


@pytest.mark.usefixtures("file_checkpoints")
def test_more_nonfinite_steps_than_may_be_skipped_end_a_run(tmp_path: Path) -> None:
    budget = r"1 steps were left out already \(--config.nonfinite.most_skips=1\)"

    with pytest.raises(UserError, match=f"gradient_norm of step 4 not finite .*{budget}"):
        train(tmp_path, Subtractor(poisoned=[1, 4]), most_skips=1)


@pytest.mark.usefixtures("file_checkpoints")
def test_a_nonfinite_batch_is_written_with_its_metrics(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gradient_norm of step 4 not finite"):
        train(tmp_path, Subtractor(poisoned=[1, 4]), most_skips=1)

    with np.load(tmp_path / "nonfinite" / "step-4.npz") as batch:
        arrays = {name: batch[name].tolist() for name in batch}
    np.testing.assert_equal(arrays, {"x": [8, np.nan], "loss": 77, "gradient_norm": np.nan})


@pytest.fixture
def skipping_run(tmp_path: Path, file_checkpoints: None) -> Path:
    """The folder of a run that leaves out its steps 1 and 4, which would take 5 and 17."""
    is_done = train(tmp_path, Subtractor(poisoned=[1, 4]), most_skips=2)
    assert is_done
    return tmp_path


def test_skipped_steps_change_neither_state_nor_means(skipping_run: Path) -> None:
    rows = evaluations_of(skipping_run)[3]["curve"]["rows"]

    assert [row["validation/loss"] for row in rows] == [100, 90, 56, 31]
    assert [row["norm"] for row in rows[1:]] == [(1 + 9) / 2, (13 + 21) / 2, 25]


def test_skipped_steps_are_counted_in_position_and_summary(skipping_run: Path) -> None:
    assert evaluations_of(skipping_run)[3]["position"]["skipped"] == 2
    assert summary_of(skipping_run)["steps_left_out"] == 2


# A hundred less 1, 9, 13, and with a budget of two also less 21 and 25.
@pytest.mark.parametrize(("budget", "total"), [(1, 77), (2, 31)])
def test_compiled_steps_stop_where_the_budget_is_spent(budget: int, total: float) -> None:
    task = Subtractor(poisoned=[1, 4])
    carry = Carry(task.init_state(), skips_left=np.int32(budget), shared=None)

    carry, metrics = jax.jit(make_train_steps(task.guarded_step))(carry, task.batches(0, 7))

    assert carry.skips_left == budget - 2
    assert carry.state.total == total
    assert metrics[FINITE].tolist() == [1, 0, 1, 1, 0, 1, 1]


@pytest.mark.usefixtures("file_checkpoints")
def test_a_run_without_improvement_stops_early(tmp_path: Path) -> None:
    # Losses 100 and 85 are equally far from 92.5.
    task = Subtractor(aim=92.5)

    train(tmp_path, task, patience=1)

    summary = summary_of(tmp_path)
    assert summary["stopped_early"] is True
    assert summary["evaluations"] == 2
    assert summary["last"]["step"] == 3


@pytest.mark.usefixtures("file_checkpoints")
def test_early_stop_uses_the_first_of_equally_good_evaluations(tmp_path: Path) -> None:
    task = Subtractor(aim=92.5)

    train(tmp_path, task, patience=1)

    summary = summary_of(tmp_path)
    assert summary["best_evaluation"] == summary["used_evaluation"] == 0
    assert summary["best"]["step"] == summary["used"]["step"] == 0


@pytest.mark.parametrize(("aim", "best", "remaining"), [(92.5, 0, [0, 1]), (0, 1, [1])])
def test_the_best_and_the_newest_checkpoint_remain(
    tmp_path: Path, aim: float, best: int, remaining: list[int]
) -> None:
    task = Subtractor(aim=aim)
    task.steps = 3

    train(tmp_path, task, keep_checkpoints=1)

    assert summary_of(tmp_path)["best_evaluation"] == best
    with Checkpoints(tmp_path / "checkpoints", keep=None, read_only=True) as checkpoints:
        assert checkpoints.steps() == remaining
        assert checkpoints.restore(1, {"about": JSON})["about"] == {"sums": [6, 9]}


@pytest.mark.usefixtures("file_checkpoints")
def test_without_patience_the_last_evaluation_is_used(tmp_path: Path) -> None:
    # The first evaluation is the best one.
    task = Subtractor(aim=100)

    train(tmp_path, task, patience=0)

    summary = summary_of(tmp_path)
    assert summary["stopped_early"] is False
    assert summary["best_evaluation"] == 0
    assert summary["used_evaluation"] == 3


@pytest.mark.usefixtures("file_checkpoints")
def test_a_second_signal_cannot_end_the_last_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers send SIGTERM more than once: the files are closed, which waits for the save, while
    it is still caught.
    """
    handlers: list[Any] = []
    close = RunFiles.__exit__

    def noting_close(self: RunFiles, *exception: Any) -> Any:
        handlers.append(signal.getsignal(signal.SIGTERM))
        return close(self, *exception)

    monkeypatch.setattr(RunFiles, "__exit__", noting_close)
    assert not train(tmp_path, Subtractor(stop_at=4))
    assert len(handlers) == 1
    assert handlers != [signal.SIG_DFL]


@pytest.mark.parametrize("devices", [1, 4])
def test_devices_divide_the_data_unless_parameters_are_split(devices: int) -> None:
    values = {"num_devices": devices}
    config = read_section(TextConfig, load_config("train_text", "wordle_ilql", values))

    assert trainer.mesh_sizes(config) == {"data": devices, "fsdp": 1, "tensor": 1}


def test_numbers_are_counted_in_arrays_and_shapes() -> None:
    tree = {"a": np.zeros((2, 3)), "b": [jax.ShapeDtypeStruct((4,), np.float32)]}

    assert trainer.numbers_in(tree) == 10
