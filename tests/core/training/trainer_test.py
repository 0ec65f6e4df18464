"""The offline trainer on a task that the package does not know: order, resume, guards, early stop, records."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
import pytest

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.checkpoints import Checkpoints
from motif_jax.core.devices.parallel import DataParallel
from motif_jax.core.errors import UserError
from motif_jax.core.training import records
from motif_jax.core.training.task import Evaluation, Task, TrainingPosition
from motif_jax.core.training.trainer import FINITE, Carry, OfflineTrainer, TrainerSettings, make_train_steps
from tests import bigrams, processes, resumed
from tests.recorded_outputs import outcome_text

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
        bigrams.main(str(tmp_path / "whole"))
    (state, position, rows), (same, *others) = saved(tmp_path / "killed"), saved(tmp_path / "whole")
    chex.assert_trees_all_equal(state, same)
    assert [position, rows] == others
    assert position["step"] == 20
    # The last epoch is shorter.
    assert [row["step"] for row in rows] == [0, 8, 16, 20]
    assert rows[-1]["validation/loss"] < rows[0]["validation/loss"] - 1
    lines = (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 8, 16, 20]


@pytest.mark.slow
def test_asked_to_stop_it_waits_for_two_steps_and_not_for_a_chunk(tmp_path):
    parallel, done, begun = DataParallel(jax.local_devices()[:1]), [], []
    task = bigrams.Bigrams(parallel)
    task.chunk_steps, step = 8, task.guarded_step

    def told(*arguments):
        jax.debug.callback(lambda: done.append(time.sleep(0.05)))
        return step(*arguments)

    task.guarded_step = told
    trainer = OfflineTrainer(task, parallel)
    train = trainer.train

    def counted(carry, batches):
        begun.append(len(done))
        if len(begun) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(carry, batches)

    trainer.train = counted
    assert not trainer.run(tmp_path)
    assert len(begun) == 5, "of the eight of a chunk"
    assert max(place - ended for place, ended in enumerate(begun)) <= 1


class Store(contextlib.nullcontext):
    """Checkpoints as plain files, see `core.checkpoints.Checkpoints`."""

    def __init__(self, folder: Path, keep: int | None = None, **_: Any) -> None:
        super().__init__(self)
        self.folder, self.keep, self.wait = folder, keep, list
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def kept(self) -> dict[int, Any]:
        return {int(path.name): pickle.loads(path.read_bytes()) for path in self.folder.iterdir()}

    def save(self, step: int, items: Any, metrics: Any = None) -> None:
        for path in self.folder.iterdir() if self.keep == 1 else ():
            path.unlink()
        (self.folder / str(step)).write_bytes(pickle.dumps(dict(items)))

    def latest(self, **_: Any) -> int | None:
        return max(self.kept, default=None)

    def restore(self, step: int, wanted: Any) -> Any:
        return {name: self.kept[step][name] for name in wanted}


class Sums(NamedTuple):
    total: Any
    seen: Any


class Subtractor(Task):
    """Takes the numbers of each step, 2 n and 2 n + 1, from a hundred; without a compiled program."""

    title, unit, criterion, source = "subtract", "numbers", "validation/loss", "a text"
    steps, steps_per_epoch, chunk_steps, remedy = 7, 3, 2, "smaller numbers"

    def __init__(self, poisoned: Sequence[int] = (), stop_at: int | None = None, aim: float = 0) -> None:
        plain = {"wrap": lambda made, donate_state: made, "put_whole": lambda tree, axes: tree}
        devices = jax.local_devices()[:1]
        same = {"devices": devices, "local_devices": devices}
        self.parallel: Any = SimpleNamespace(platform="cpu", replicate_freeing=list.pop, **plain, **same)
        self.digests, self.poisoned, self.stop_at, self.aim = {"the text": "a"}, poisoned, stop_at, aim
        self.asked: list[tuple[int, int]] = []

    def init_state(self) -> Sums:
        return Sums(np.float32(100), np.zeros(2, np.float32))

    def step(self, state: Sums, shared: Any, batch: Any) -> tuple[Sums, dict[str, Any]]:
        x = batch["x"]
        return Sums(state.total - x.sum(), state.seen + x), {"loss": state.total, "gradient_norm": x.sum()}

    def batches(self, first: int, count: int) -> dict[str, np.ndarray]:
        self.asked.append((first, count))
        steps = np.arange(first, first + count)
        if self.stop_at in steps:
            os.kill(os.getpid(), signal.SIGTERM)
        x = np.arange(2 * first, 2 * (first + count), dtype=np.float32).reshape(count, 2)
        x[np.isin(steps, self.poisoned), 1] = np.nan
        return {"x": x}

    def evaluate(self, state: Sums, shared: Any, position: TrainingPosition) -> Evaluation:
        row = {"validation/loss": abs(float(state.total) - self.aim), "norm": position.mean("gradient_norm")}
        row |= self.shown(position.sums)
        return Evaluation(row, {"about": {"seen": state.seen.tolist()}}, f"at {position.step}")

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        return {f"logged/{name}": values.sum() for name, values in metrics.items()}

    def write(self, workdir: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        (workdir / "rows.txt").write_text(f"{len(rows)}")


def subtracted(folder: Path, task: Subtractor, **given: Any) -> bool:
    return OfflineTrainer(task, task.parallel, TrainerSettings(**given)).run(folder)


def left(folder: Path) -> str:
    """What a run leaves: its evaluations, its logged rows without times, its summary."""
    rows = (folder / "metrics.jsonl").read_text()
    rows = re.sub(r', "time": [\d.]+|, "evaluation/seconds": [-e\d.]+', "", rows)
    kept = sorted(Store(folder / "checkpoints").kept.items())
    evaluations = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), kept)
    return f"{evaluations}\n{rows}\n" + "".join(
        (folder / name).read_text() for name in ("summary.json", "rows.txt")
    )


@pytest.fixture
def in_memory(monkeypatch):
    monkeypatch.setattr(records, "Checkpoints", Store)


def test_a_run_evaluates_before_the_first_and_after_each_epoch(tmp_path, in_memory, capsys):
    """The sum that is left falls by 4 n + 1 in step n; seven steps in epochs of three."""
    task = Subtractor()

    assert subtracted(tmp_path, task)

    assert task.asked == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1)]
    assert re.findall("^at .*$", capsys.readouterr().err, re.MULTILINE) == ["at 0", "at 3", "at 6", "at 7"]
    newest = Store(tmp_path / "checkpoints").kept[3]
    rows = newest["curve"]["rows"]
    assert [row["step"] for row in rows] == [0, 3, 6, 7]
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert [row["validation/loss"] for row in rows] == [100, 85, 34, 9]


def test_means_of_an_evaluation_are_of_the_steps_before_it(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor())

    first, *rows = Store(tmp_path / "checkpoints").kept[3]["curve"]["rows"]
    assert np.isnan(first["norm"])
    assert [row["norm"] for row in rows] == [(1 + 5 + 9) / 3, (13 + 17 + 21) / 3, 25]
    assert [row["loss"] for row in rows] == pytest.approx([(100 + 99 + 94) / 3, (85 + 72 + 55) / 3, 34])


def test_checkpoints_hold_state_position_items_and_config(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor(), config={"a": 1})

    kept = Store(tmp_path / "checkpoints").kept
    assert sorted(kept) == [0, 1, 2, 3]
    items = kept[1]
    assert (items["total"], items["seen"].tolist(), items["about"]) == (85, [6, 9], {"seen": [6, 9]})
    assert items["config"] == {"a": 1}
    position = items["position"]
    assert (position["step"], position["epoch"], position["step_in_epoch"], position["skipped"]) == (
        3,
        1,
        0,
        0,
    )
    assert position["digests"] == {"the text": "a"}
    assert not Store(tmp_path / "resume").kept, "what was saved to go on is removed at the end"


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


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, in_memory):
    """Behind the step that is under way, in the chunks of a run that was not stopped; at the end nothing is left to stop."""
    assert subtracted(tmp_path / "whole", Subtractor(), save_every_seconds=0)
    assert list(Store(tmp_path / "whole" / "resume").kept) == [5]
    for stop_at, done, asked in ((0, 1, (0, 2)), (4, 4, (3, 2)), (2, 3, (3, 2)), (6, 7, None)):
        folder, again = tmp_path / f"stopped_{stop_at}", Subtractor()
        assert subtracted(folder, Subtractor(stop_at=stop_at)) == (done == 7)
        kept = [*Store(folder / "resume").kept.values(), *Store(folder / "checkpoints").kept.values()]
        assert max(items["position"]["step"] for items in kept) == done
        assert subtracted(folder, again)
        assert next(iter(again.asked), None) == asked
        assert left(folder) == left(tmp_path / "whole")


def test_the_first_step_that_is_not_finite_ends_a_run(tmp_path, in_memory):
    remedy = "with smaller numbers; --config.nonfinite.policy=skip continues without that step"

    with pytest.raises(UserError, match=rf"gradient_norm of step 1 not finite .*step-1\.npz\).*{remedy}"):
        subtracted(tmp_path, Subtractor([1, 4]), most_skips=0)

    ((step, items),) = Store(tmp_path / "resume").kept.items()
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

    newest = Store(tmp_path / "checkpoints").kept[3]
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


@pytest.mark.parametrize(("patience", "steps", "best", "kept"), [(1, 7, 0, [0, 1]), (0, 3, 1, [1])])
def test_early_stop_uses_the_best(tmp_path, patience, steps, best, kept):
    """The newest is kept, and the first of equally good ones."""
    task = Subtractor(aim=92.5 * patience)
    task.steps = steps
    assert subtracted(tmp_path, task, patience=patience, keep=1)
    summary = json.loads((tmp_path / "summary.json").read_text())
    names = "stopped_early", "evaluations", "best_evaluation", "used_evaluation"
    assert [summary[name] for name in names] == [patience == 1, 2, best, best]
    assert [summary[name]["step"] for name in ("best", "used", "last")] == [3 * best, 3 * best, 3]
    with Checkpoints(tmp_path / "checkpoints", keep=None, read_only=True) as checkpoints:
        assert checkpoints.steps() == kept
        assert checkpoints.restore(1, {"about": JSON})["about"] == {"seen": [6, 9]}


@pytest.fixture
def stopped(tmp_path, in_memory):
    """A run that was stopped behind its fourth step."""
    assert not subtracted(tmp_path, Subtractor(stop_at=3))
    return Store(tmp_path / "resume")


def test_a_run_of_other_steps_between_evaluations_is_refused(tmp_path, stopped):
    task = Subtractor()
    task.steps_per_epoch = 2

    with pytest.raises(UserError, match=r"stands at step 4 after 1 evaluations: .* with 2 steps between two"):
        subtracted(tmp_path, task)


TEXT = {"the text": "a"}
TWO_DEVICES = {records.DEVICES: "2"}


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (
            TEXT,
            {"the text": "b", "more": "c"},
            "was trained on other more, the text than a file has now: use the same",
        ),
        (TEXT, {}, "was trained on other the text than a file has now"),
        # Each device draws dropout of its own.
        (TWO_DEVICES, {records.DEVICES: "3"}, "was trained on 2 devices, config.num_devices gives 3 here"),
        (TEXT, TWO_DEVICES, "was trained on other number of devices, the text than a file has now"),
    ],
)
def test_a_run_on_other_data_or_devices_is_refused(tmp_path, stopped, before, now, message):
    items = stopped.kept[4]
    items["position"]["digests"] = before
    stopped.save(4, items)
    task = Subtractor()
    task.digests = now

    with pytest.raises(UserError, match=f"^{tmp_path} {message}"):
        records.refuse_other_data(tmp_path, now, "a file")
    with pytest.raises(UserError, match=f"^{tmp_path} {message.replace('a file', 'a text')}"):
        subtracted(tmp_path, task)


def test_a_run_on_the_same_data_or_none_is_taken(tmp_path, stopped):
    records.refuse_other_data(tmp_path, TEXT, "a file")
    records.refuse_other_data(tmp_path / "new", TEXT, "a text")


def test_a_checkpoint_of_another_layout_is_refused(tmp_path, stopped):
    items = stopped.kept[4]
    stopped.save(4, {"position": {**items["position"], "phase": 2}})

    with pytest.raises(
        UserError, match=r"checkpoint 4 is of a layout .*phase.*with the version in the run's"
    ):
        records.refuse_other_data(tmp_path, TEXT, "a text")


def test_what_a_refused_start_leaves(tmp_path):
    def started(config, refused):
        with records.prepared(tmp_path, {"stage": "a", **config}, ("stage",), ("tokens", "mine", "made")):
            (tmp_path / "tokens").mkdir(exist_ok=True)
            (tmp_path / "made").touch()
            if refused:
                raise UserError("no")

    there = lambda: sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".")  # noqa: E731
    (tmp_path / "mine").touch()
    assert (outcome_text(started, {"b": 1}, True), there()) == ("UserError: no", ["mine"])
    started({"b": 1}, False)
    before = (tmp_path / "config.json").read_bytes()
    assert there() == ["config.json", "made", "mine", "tokens", "versions.json"]
    (tmp_path / "resume").mkdir()
    assert outcome_text(started, {"b": 2}, True) == "UserError: no"
    assert (tmp_path / "config.json").read_bytes() == before
    assert there() == ["config.json", "made", "mine", "resume", "tokens", "versions.json"]


def test_what_is_exported_is_of_the_used_evaluation_and_once(tmp_path, in_memory):
    subtracted(tmp_path, Subtractor(aim=85), patience=1)
    written, path = [], tmp_path / "model" / "about.json"

    def write(items, trained):
        written.append((items, trained["evaluation"], trained["step"]))
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"trained": trained} if len(written) > 1 else trained))

    for times in (1, 1, 2, 2):
        if times == 2 and len(written) == 1:
            path.write_text(json.dumps({"evaluation": 0}))
        assert records.export(tmp_path, path, {"about": JSON}, write) == path.parent
        assert written == [({"about": {"seen": [6, 9]}}, 1, 3)] * times
