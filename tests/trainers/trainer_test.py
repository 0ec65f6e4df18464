"""The offline trainer on a task that the package does not know: order, resume, guards, early stop, records."""

from __future__ import annotations

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
from unittest.mock import ANY

import chex
import jax
import numpy as np
import pytest

from motif_jax.devices.parallel import DataParallel
from motif_jax.support.checkpoint_items import JSON
from motif_jax.support.checkpoints import Checkpoints
from motif_jax.support.errors import UserError
from motif_jax.trainers import records
from motif_jax.trainers.records import DEVICES
from motif_jax.trainers.task import Evaluation, Task, TrainingPosition, epoch_order
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


class Store:
    """Checkpoints as plain files, see `support.checkpoints.Checkpoints`."""

    def __init__(self, folder: Path, keep: int | None = None, **_: Any) -> None:
        self.folder, self.keep = folder, keep
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def kept(self) -> dict[int, Any]:
        return {int(path.name): pickle.loads(path.read_bytes()) for path in self.folder.iterdir()}

    def save(self, step: int, items: Any, metrics: Any = None) -> None:
        for path in self.folder.iterdir() if self.keep == 1 else ():
            path.unlink()
        (self.folder / str(step)).write_bytes(pickle.dumps(dict(items)))

    def latest(self, all_damaged_is_none: bool = False) -> int | None:
        return max(self.kept, default=None)

    def restore(self, step: int, wanted: Any) -> Any:
        return {name: self.kept[step][name] for name in wanted}

    def wait(self) -> None: ...

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None: ...


class Sums(NamedTuple):
    total: Any
    seen: Any


class Subtractor(Task):
    """Takes the numbers of each step, 2 n and 2 n + 1, from a hundred; without a compiled program."""

    title, unit, criterion, source = "subtract", "numbers", "validation/loss", "a text"
    steps, steps_per_epoch, chunk_steps = 7, 3, 2
    remedy = "smaller numbers"

    def __init__(self, poisoned: Sequence[int] = (), stop_at: int | None = None) -> None:
        given = {
            "platform": "cpu",
            "wrap": lambda made, donate_state: made,
            "put_whole": lambda tree, axes: tree,
        }
        self.parallel: Any = SimpleNamespace(**given, replicate_freeing=list.pop)
        self.digests, self.poisoned, self.stop_at = {"the text": "a"}, poisoned, stop_at
        self.asked: list[tuple[int, int]] = []

    def init_state(self) -> Sums:
        return Sums(np.float32(100), np.zeros(2, np.float32))

    def step(self, state: Sums, shared: Any, batch: Any) -> tuple[Sums, dict[str, Any]]:
        x = batch["x"]
        return Sums(state.total - x.sum(), state.seen + x), {"loss": state.total, "gradient_norm": x.sum()}

    def batches(self, first: int, count: int) -> dict[str, np.ndarray]:
        self.asked.append((first, count))
        if self.stop_at in range(first, first + count):
            os.kill(os.getpid(), signal.SIGTERM)
        x = np.arange(2 * first, 2 * (first + count), dtype=np.float32).reshape(count, 2)
        x[np.isin(range(first, first + count), self.poisoned), 1] = np.nan
        return {"x": x}

    def evaluate(self, state: Sums, shared: Any, position: TrainingPosition) -> Evaluation:
        row = {
            "validation/loss": float(state.total),
            "norm": position.mean("gradient_norm"),
            **self.shown(position.sums),
        }
        return Evaluation(row, {"about": {"seen": state.seen.tolist()}}, f"at {position.step}")

    def logged(self, metrics: Mapping[str, np.ndarray], seconds: float) -> dict[str, float]:
        return {f"logged/{name}": values.sum() for name, values in metrics.items()}


def subtracted(folder: Path, task: Subtractor, **given: Any) -> bool:
    return OfflineTrainer(task, task.parallel, TrainerSettings(**given)).run(folder)


def left(folder: Path) -> tuple[Any, ...]:
    """What a run leaves: its evaluations, its logged rows without times, its summary."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("time"), row.pop("evaluation/seconds", None)
    return Store(folder / "checkpoints").kept, rows, json.loads((folder / "summary.json").read_text())


@pytest.fixture
def in_memory(monkeypatch):
    monkeypatch.setattr(records, "Checkpoints", Store)


def test_what_a_run_leaves(tmp_path, in_memory, capsys):
    task = Subtractor()
    assert subtracted(tmp_path, task, given={"a": 1}, log_every_seconds=0.0)
    assert task.asked == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1)]
    evaluations, rows, summary = left(tmp_path)
    curve = [
        {"epoch": 0, "step": 0, "validation/loss": 100.0, "norm": ANY},
        {"epoch": 1, "step": 3, "validation/loss": 85.0, "norm": 5.0, "loss": 293 / 3},
        {"epoch": 2, "step": 6, "validation/loss": 34.0, "norm": 17.0, "loss": 212 / 3},
        {"epoch": 3, "step": 7, "validation/loss": 9.0, "norm": 25.0, "loss": 34.0},
    ]
    seen = ([0, 0], [6, 9], [30, 36], [42, 49])
    for number, (row, done) in enumerate(zip(curve, seen, strict=True)):
        step, epochs = row["step"], {"epoch": number, "sums": {}, "skipped": 0}
        place = {**epochs, "step": step, "step_in_epoch": step - 3 * number, "digests": task.digests}
        found = evaluations[number]
        state = {"total": found.pop("total"), "seen": found.pop("seen").tolist()}
        assert state == {"total": row["validation/loss"], "seen": done}
        items = {"position": place, "curve": {"rows": curve[: number + 1]}}
        assert found == {**items, "about": {"seen": done}, "config": {"a": 1}}
    losses = enumerate((100.0, 99.0, 94.0, 85.0, 72.0, 55.0, 34.0))
    wanted = [{"step": n + 1, "logged/loss": loss, "logged/gradient_norm": 4.0 * n + 1} for n, loss in losses]
    for row, place in zip(curve, (0, 4, 8, 10), strict=True):
        wanted.insert(place, {name: row[name] for name in ("step", "validation/loss")})
    assert rows == wanted
    told = {
        "evaluations": 4,
        "stopped_early": False,
        "steps_left_out": 0,
        "best_evaluation": 3,
        "used_evaluation": 3,
    }
    assert summary == {**told, **dict.fromkeys(("best", "used", "last"), curve[3])}
    said = re.findall("^at .*$", capsys.readouterr().err, re.MULTILINE)
    assert said == ["at 0", "at 3", "at 6", "at 7"]
    assert not Store(tmp_path / "resume").kept


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
        jax.tree.map(np.testing.assert_array_equal, left(folder), left(tmp_path / "whole"))


def test_steps_that_are_not_finite_are_left_out_up_to_a_budget(tmp_path, in_memory):
    for most, step, more in (
        (0, 1, "--config.nonfinite.policy=skip continues without that step"),
        (1, 4, "1 steps were left out already (--config.nonfinite.most_skips=1)"),
    ):
        with pytest.raises(UserError) as refused:
            subtracted(tmp_path, Subtractor([1, 4]), most_skips=most)
        path = tmp_path / "nonfinite" / f"step-{step}.npz"
        told = f"the training diverged: gradient_norm of step {step} not finite (its batch is in {path}); what was saved before"
        assert (
            str(refused.value) == f"{told} stays; start it in another --workdir with smaller numbers; {more}"
        )
        position = Store(tmp_path / "resume").kept[step]["position"]
        assert (position["step"], position["skipped"]) == (step, most)
    assert subtracted(tmp_path, Subtractor([1, 4]), most_skips=2)
    evaluations, _, summary = left(tmp_path)
    assert (summary["steps_left_out"], evaluations[3]["total"]) == (2, 31)
    assert [row.get("loss") for row in evaluations[3]["curve"]["rows"]] == [None, 99.5, 83.5, 56.0]
    with np.load(path) as kept:
        assert {name: kept[name].tolist() for name in kept} == {
            "x": [8, ANY],
            "loss": 77,
            "gradient_norm": ANY,
        }


def test_early_stop_uses_the_best(tmp_path, in_memory):
    class Adder(Subtractor):
        def evaluate(self, *given):
            found = super().evaluate(*given)
            found.row["validation/loss"] = abs(found.row["validation/loss"] - 85)
            return found

    assert subtracted(tmp_path, Adder(), patience=1)
    summary = left(tmp_path)[2]
    assert summary["stopped_early"]
    assert [summary[name] for name in ("evaluations", "best_evaluation", "used_evaluation")] == [3, 1, 1]
    assert [summary[name]["step"] for name in ("best", "used", "last")] == [3, 3, 6]


def test_a_folder_of_other_data_devices_steps_or_layout_is_refused(tmp_path, in_memory):
    """Where dropout is drawn, those devices that the machine has may be others in the next start."""
    subtracted(tmp_path, Subtractor(stop_at=3))
    for changes, told in (
        (
            {"digests": {"the text": "b", "more": "c"}},
            "was trained on other more, the text than a text has now: use the same to continue, or another --workdir",
        ),
        (
            {"steps_per_epoch": 2},
            "stands at step 4 after 1 evaluations: it was not written with 2 steps between two evaluations",
        ),
    ):
        task = Subtractor()
        for name, value in changes.items():
            setattr(task, name, value)
        with pytest.raises(UserError) as refused:
            subtracted(tmp_path, task)
        assert str(refused.value) == f"{tmp_path} {told}"
    given = tmp_path, {"the text": "a"}, "a text"
    records.refuse_other_data(*given)
    with pytest.raises(UserError, match="was trained on other the text than another text has now"):
        records.refuse_other_data(tmp_path, {}, "another text")
    records.refuse_other_data(tmp_path / "new", {}, "another text")
    store = Store(tmp_path / "resume", keep=1)
    items = store.kept[4]
    items["position"]["digests"][DEVICES] = "2"
    store.save(4, items)
    with pytest.raises(
        UserError, match=r"was trained on 2 devices, config\.num_devices gives 3 here.*dropout"
    ):
        records.refuse_other_data(tmp_path, {"the text": "a", DEVICES: "3"}, "a text")
    records.refuse_other_data(tmp_path, {"the text": "a", DEVICES: "2"}, "a text")
    store.save(4, {**items, "position": {**items["position"], "phase": 2}})
    with pytest.raises(
        UserError, match=r"checkpoint 4 is of a layout that this version does not know \(position: .*phase"
    ):
        records.refuse_other_data(*given)


def test_an_order_is_of_its_seed_and_epoch():
    rows = np.arange(100, 110)
    order, *others = (epoch_order(*which, rows, 4) for which in ((3, 1), (3, 1), (3, 2), (4, 1)))
    assert order.shape == (3, 4)
    assert (sorted(order.flat[:10]), order[2, 2:].tolist()) == (rows.tolist(), [-1, -1])
    assert [np.array_equal(other, order) for other in others] == [True, False, False]
