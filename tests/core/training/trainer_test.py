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
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

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
        self.parallel: Any = SimpleNamespace(platform="cpu", replicate_freeing=list.pop, **plain)
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


def test_what_a_run_leaves(tmp_path, in_memory, capsys, record):
    task = Subtractor()
    assert subtracted(tmp_path, task, config={"a": 1}, log_every_seconds=0.0)
    assert task.asked == [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1)]
    assert re.findall("^at .*$", capsys.readouterr().err, re.MULTILINE) == ["at 0", "at 3", "at 6", "at 7"]
    assert not Store(tmp_path / "resume").kept
    assert_matches_packed_recording("offline_run", {"left": left(tmp_path)}, record)


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


def test_steps_that_are_not_finite_are_left_out_up_to_a_budget(tmp_path, in_memory, record):
    found = []
    for most in (0, 1, 2):
        found.append(outcome_text(subtracted, tmp_path, Subtractor([1, 4]), most_skips=most, folder=tmp_path))
        found += [f"{step} {items['position']}" for step, items in Store(tmp_path / "resume").kept.items()]
    with np.load(tmp_path / "nonfinite" / "step-4.npz") as kept:
        found += [f"{name} {kept[name].tolist()}" for name in sorted(kept)]
    assert_matches_packed_recording(
        "offline_nonfinite", {"found": "\n".join([*found, left(tmp_path)])}, record
    )
    task = Subtractor([1, 4])
    for most, total in ((1, 77), (2, 31)):
        carry = Carry(task.init_state(), np.int32(most), None)
        carry, metrics = jax.jit(make_train_steps(task.guarded_step))(carry, task.batches(0, 7))
        assert (carry.left, carry.state.total) == (most - 2, total)
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


def test_a_folder_of_other_data_devices_steps_or_layout_is_refused(tmp_path, in_memory, record):
    """Where dropout is drawn, those devices that the machine has may be others in the next start."""
    subtracted(tmp_path, Subtractor(stop_at=3))
    task, store = Subtractor(), Store(tmp_path / "resume")
    text, other = {"the text": "a"}, {records.DEVICES: "2"}
    task.steps_per_epoch = 2
    found, items = [outcome_text(subtracted, tmp_path, task)], store.kept[4]
    changed, more = {"the text": "b", "more": "c"}, {records.DEVICES: "3"}
    for before, now in ((text, changed), (text, {}), (other, more), (text, other), (text, text)):
        items["position"]["digests"], task.digests = before, now
        store.save(4, items)
        found += [
            outcome_text(subtracted, tmp_path, task),
            outcome_text(records.refuse_other_data, tmp_path, now, "a file"),
        ]
    found.append(outcome_text(records.refuse_other_data, tmp_path / "new", now, "a text"))
    store.save(4, {"position": {**items["position"], "phase": 2}})
    found.append(outcome_text(records.refuse_other_data, tmp_path, now, "a text"))
    assert_matches_packed_recording(
        "offline_refused", {"found": "\n".join(found).replace(str(tmp_path), "FOLDER")}, record
    )


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
