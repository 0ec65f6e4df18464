"""The offline trainer on a task that the package does not know: order, resume, guards, early stop, records."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from motif_jax.devices.parallel import DataParallel
from motif_jax.support.checkpoint_items import JSON
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.trainers.records import DEVICES
from motif_jax.trainers.task import epoch_order
from motif_jax.trainers.trainer import OfflineTrainer, TrainerSettings, make_train_steps
from tests import bigrams, resumed
from tests.bigrams import Bigrams, State
from tests.processes import killed

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def make(devices=2, poisoned=(), settings=None, **given):
    parallel = DataParallel(jax.local_devices()[:devices])
    task = Bigrams(parallel, **given)
    task.poisoned = set(poisoned)
    return OfflineTrainer(task, parallel, settings)


def saved(folder: Path, which: str = "checkpoints") -> tuple[State, dict, list]:
    """State, position and rows of the newest checkpoint."""
    state = make().task.init_state()
    with Checkpoints(folder / which, keep=None, read_only=True) as checkpoints:
        items = checkpoints.restore(None, {**state._asdict(), "position": JSON, "curve": JSON})
    return State(items["logits"], items["opt_state"]), items["position"], items["curve"]["rows"]


def assert_same_end(one: Path, other: Path):
    (state, *records), (same, *others) = saved(one), saved(other)
    chex.assert_trees_all_equal(state, same)
    assert records == others
    return records


KILLED = "import sys; from tests import bigrams; bigrams.main(*sys.argv[1:])"


@pytest.mark.slow
def test_a_task_from_outside_is_killed_and_ends_with_the_same_bits(tmp_path):
    killed(KILLED, str(tmp_path / "killed"), "14")
    _, position, _ = saved(tmp_path / "killed", "resume")
    # The step that it died behind was being saved.
    assert position["step"] in (11, 14)
    assert (position["epoch"], position["step_in_epoch"]) == (1, position["step"] - 8)
    killed(KILLED, str(tmp_path / "killed"), "19")
    done = resumed.saved_step(tmp_path / "killed")
    assert done >= 14
    with resumed.takes(20 - done):
        bigrams.main(str(tmp_path / "killed"))
    with resumed.takes(20):
        bigrams.main(str(tmp_path / "whole"))
    position, rows = assert_same_end(tmp_path / "killed", tmp_path / "whole")
    assert position["step"] == 20
    # The last epoch is shorter.
    assert [row["step"] for row in rows] == [0, 8, 16, 20]
    assert rows[-1]["validation/loss"] < rows[0]["validation/loss"] - 1
    lines = (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 8, 16, 20]


@pytest.mark.slow
def test_asked_to_stop_it_waits_for_two_steps_and_not_for_a_chunk(tmp_path):
    """And continues from the middle of a chunk to the same bits."""
    done, begun = [], []

    def trainer():
        made = make(devices=1)
        made.task.chunk_steps, step = 8, made.task.guarded_step

        def told(*arguments):
            jax.debug.callback(lambda: done.append(time.sleep(0.05)))
            return step(*arguments)

        made.train = made.parallel.wrap(make_train_steps(told), donate_state=True)
        train = made.train

        def counted(carry, batches):
            begun.append(len(done))
            if len(begun) == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return train(carry, batches)

        made.train = counted
        return made

    assert not trainer().run(tmp_path / "stopped")
    assert len(begun) == 5, "of the eight of a chunk"
    undone = [place - ended for place, ended in enumerate(begun)]
    assert max(undone) <= 1
    _, position, _ = saved(tmp_path / "stopped", "resume")
    assert position["step"] == 5
    assert trainer().run(tmp_path / "stopped")
    assert len(begun) == 20, "it continued behind the five"
    assert make(devices=1).run(tmp_path / "whole")
    assert_same_end(tmp_path / "stopped", tmp_path / "whole")


def steps_taken(steps):
    trainer = make()
    carry = trainer.place(trainer.task.init_state())
    for step in sorted(steps):
        carry, _ = trainer.train_chunk(carry, trainer.task.batches(step, 1))
    return jax.device_get(carry.state)


@pytest.mark.slow
@pytest.mark.parametrize("per_call", [1, None], ids=["a_call_each", "one_program"])
def test_a_step_that_is_not_finite_stops_the_run_before_it_and_may_be_left_out(tmp_path, per_call):
    def run(folder, **given):
        trainer = make(poisoned={10, 17}, settings=TrainerSettings(**given))
        trainer.steps_per_call = per_call
        return trainer.run(tmp_path / folder)

    told = r"gradient_norm, loss of step 10 not finite .*step-10\.npz.*policy=skip"
    with pytest.raises(UserError, match=told):
        run("r")
    state, position, _ = saved(tmp_path / "r", "resume")
    assert (position["step"], position["sums"]["steps"]) == (10, 2)
    exact = {"rtol": 0 if per_call else 1e-5, "atol": 0 if per_call else 1e-6}
    chex.assert_trees_all_close(state, steps_taken(range(10)), **exact)
    with np.load(tmp_path / "r" / "nonfinite" / "step-10.npz") as batch:
        assert set(batch) == {"letter", "next", "weight", "loss", "gradient_norm"}
        np.testing.assert_array_equal(batch["letter"], make().task.batches(10, 1)["letter"][0])
        assert np.isnan(batch["loss"])
    # The same once more ends at the same place; one step may be left out now, and the next is one too many.
    with resumed.takes(4), pytest.raises(UserError, match="step 10 not finite"):
        run("r")
    with pytest.raises(UserError, match=r"step 17 not finite .*; 1 steps .*most_skips=1"):
        run("r", most_skips=1)
    assert saved(tmp_path / "r", "resume")[1]["skipped"] == 1
    with resumed.takes(3):
        assert run("r", most_skips=2)
    state, position, _ = saved(tmp_path / "r")
    assert (position["step"], position["skipped"]) == (20, 2)
    chex.assert_trees_all_close(state, steps_taken({*range(20)} - {10, 17}), **exact)
    assert run("never_stopped", most_skips=2)
    if per_call:  # else the chunks of the two are not cut alike
        assert_same_end(tmp_path / "r", tmp_path / "never_stopped")
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (summary["steps_left_out"], summary["stopped_early"]) == (2, False)


@pytest.mark.slow
def test_early_stop_and_what_is_kept(tmp_path):
    assert make(rate=0.0, settings=TrainerSettings(patience=1, keep=1)).run(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["stopped_early"]
    assert (summary["evaluations"], summary["best_evaluation"], summary["used_evaluation"]) == (2, 0, 0)
    with Checkpoints(tmp_path / "checkpoints", keep=None, read_only=True) as checkpoints:
        assert checkpoints.steps() == [0, 1], "the newest, and the first of equally good ones"
    assert make(settings=TrainerSettings(keep=1)).run(tmp_path / "all")
    with Checkpoints(tmp_path / "all" / "checkpoints", keep=None, read_only=True) as checkpoints:
        assert checkpoints.steps() == [3]
        assert checkpoints.restore(3, {"alphabet": JSON})["alphabet"] == {"letters": 128}


@pytest.mark.slow
def test_a_folder_of_other_data_steps_or_layout_is_refused(tmp_path):
    make().run(tmp_path)
    for key, value, told in (
        ("digests", {"the text": "another"}, "was trained on other the text than a text has now"),
        ("steps_per_epoch", 7, "not written with 7 steps between two evaluations"),
    ):
        trainer = make()
        setattr(trainer.task, key, value)
        with pytest.raises(UserError, match=told):
            trainer.run(tmp_path)
    state, position, rows = saved(tmp_path)
    with Checkpoints(tmp_path / "later" / "checkpoints", keep=None) as checkpoints:
        items = {**state._asdict(), "position": {**position, "phase": 2}, "curve": {"rows": rows}}
        checkpoints.save(3, items)
    with pytest.raises(UserError, match=r"of a layout that this version does not know \(position: .*phase"):
        make().run(tmp_path / "later")


@pytest.mark.slow
def test_a_run_with_dropout_goes_on_with_as_many_devices_alone(tmp_path):
    """Those that the machine has may be others in the next start."""

    def run(steps, devices):
        trainer = make()
        trainer.task.steps, trainer.task.steps_per_epoch = steps, 4
        trainer.task.digests = {**trainer.task.digests, DEVICES: str(devices)}
        return trainer.run(tmp_path)

    assert run(8, 2)
    told = r"was trained on 2 devices, config\.num_devices gives 3 here.*dropout"
    with pytest.raises(UserError, match=told):
        run(12, 3)
    assert run(12, 2)


def test_an_order_is_of_its_seed_and_epoch():
    rows = np.arange(100, 110)
    order, *others = (epoch_order(*which, rows, 4) for which in ((3, 1), (3, 1), (3, 2), (4, 1)))
    assert order.shape == (3, 4)
    assert (sorted(order.flat[:10]), order[2, 2:].tolist()) == (rows.tolist(), [-1, -1])
    assert [np.array_equal(other, order) for other in others] == [True, False, False]
