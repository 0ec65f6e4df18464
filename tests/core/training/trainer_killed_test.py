"""The offline trainer on a compiled task from outside the package, with real checkpoints: killed,
resumed, stopped.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import chex
import jax
import pytest

from motif_jax.core.checkpoints import JSON, Checkpoints
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.metrics import read_metrics
from motif_jax.core.training.run_files import CHECKPOINTS, RESUME
from motif_jax.core.training.trainer import OfflineTrainer
from tests import bigrams, processes, resumed

pytestmark = pytest.mark.slow

KILLED = "import sys; from tests import bigrams; bigrams.main(*sys.argv[1:])"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 20 steps in epochs of eight."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with resumed.takes(20):
        bigrams.main(str(folder))
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that died before its 15th step, while the checkpoint of the step before
    was being saved.
    """
    folder = tmp_path_factory.mktemp("killed")
    processes.killed(KILLED, str(folder), "14")
    return folder


def newest_checkpoint(folder: Path) -> tuple[bigrams.State, dict[str, Any], list[dict[str, Any]]]:
    """State, position and evaluations' rows of the newest checkpoint in a folder."""
    state = bigrams.Bigrams(DataParallel(jax.local_devices()[:2])).init_state()
    with Checkpoints(folder, keep=None, read_only=True) as checkpoints:
        items = checkpoints.restore(None, {**state._asdict(), "position": JSON, "curve": JSON})
    return (
        bigrams.State(items["logits"], items["opt_state"]),
        items["position"],
        items["curve"]["rows"],
    )


def test_the_last_epoch_may_be_shorter(undisturbed: Path) -> None:
    _, position, rows = newest_checkpoint(undisturbed / CHECKPOINTS)

    assert position["step"] == 20
    assert [row["step"] for row in rows] == [0, 8, 16, 20]
    assert [row["step"] for row in read_metrics(undisturbed)] == [0, 8, 16, 20]


def test_a_compiled_task_learns(undisturbed: Path) -> None:
    _, _, rows = newest_checkpoint(undisturbed / CHECKPOINTS)

    assert rows[-1]["validation/loss"] < rows[0]["validation/loss"] - 1


def test_a_killed_run_has_the_position_of_its_last_save(killed: Path) -> None:
    _, position, _ = newest_checkpoint(killed / RESUME)

    # A kill during a save leaves the checkpoint before.
    assert position["step"] in (11, 14)
    assert position["epoch"] == 1
    assert position["step_in_epoch"] == position["step"] - 8


def test_a_run_killed_twice_ends_with_the_same_bits(
    tmp_path: Path, killed: Path, undisturbed: Path
) -> None:
    folder = tmp_path / "killed_twice"
    shutil.copytree(killed, folder)
    processes.killed(KILLED, str(folder), "19")
    saved_step = resumed.saved_step(folder)
    assert saved_step >= 14

    with resumed.takes(20 - saved_step):
        bigrams.main(str(folder))

    state, position, rows = newest_checkpoint(folder / CHECKPOINTS)
    expected_state, expected_position, expected_rows = newest_checkpoint(undisturbed / CHECKPOINTS)
    chex.assert_trees_all_equal(state, expected_state)
    assert position == expected_position
    assert rows == expected_rows
    assert [row["step"] for row in read_metrics(folder)] == [0, 8, 16, 20]


class SlowBigrams(bigrams.Bigrams):
    """Takes 50 ms for each step, in chunks of eight, and counts those that have finished."""

    chunk_steps = 8

    def __init__(self, parallel: DataParallel) -> None:
        super().__init__(parallel)
        self.num_finished = 0

    def guarded_step(self, state: Any, shared: Any, batch: Any, may_apply: jax.Array) -> Any:
        jax.debug.callback(self._finish_step)
        return super().guarded_step(state, shared, batch, may_apply)

    def _finish_step(self) -> None:
        time.sleep(0.05)
        self.num_finished += 1


@pytest.fixture(scope="module")
def finished_before(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """For each step that a run started the number of steps that had finished; the fifth one's start
    asks the run to stop.
    """
    parallel = DataParallel(jax.local_devices()[:1])
    task = SlowBigrams(parallel)
    trainer = OfflineTrainer(task, dataclasses.replace(bigrams.CONFIG, save_every_seconds=300.0))
    start_step = trainer.train
    finished: list[int] = []

    def start_and_stop_at_the_fifth(carry: Any, batches: Any) -> Any:
        finished.append(task.num_finished)
        if len(finished) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return start_step(carry, batches)

    trainer.train = start_and_stop_at_the_fifth
    is_done = trainer.run(tmp_path_factory.mktemp("stopped"))
    assert not is_done
    return finished


def test_no_step_starts_after_a_request_to_stop(finished_before: list[int]) -> None:
    """The request comes in the middle of a chunk of eight."""
    assert len(finished_before) == 5


def test_a_request_to_stop_waits_for_two_steps_at_most(finished_before: list[int]) -> None:
    in_flight = [started - finished for started, finished in enumerate(finished_before)]

    # Beside the step that starts.
    assert max(in_flight) <= 1
