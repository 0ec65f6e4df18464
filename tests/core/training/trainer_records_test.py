"""The offline trainer on a task that the package does not know: what a run on other data, devices or layouts is refused for, and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.checkpoint_items import JSON
from motif_jax.core.errors import UserError
from motif_jax.core.training import records
from tests.core.training.subtraction import (
    FileCheckpoints,
    Subtractor,
    subtracted,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def stopped(tmp_path, in_memory):
    """A run that was stopped behind its fourth step."""
    assert not subtracted(tmp_path, Subtractor(stop_at=3))
    return FileCheckpoints(tmp_path / "resume")


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
    items = stopped.items[4]
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
    items = stopped.items[4]
    stopped.save(4, {"position": {**items["position"], "phase": 2}})

    with pytest.raises(
        UserError, match=r"checkpoint 4 is of a layout .*phase.*with the version in the run's"
    ):
        records.refuse_other_data(tmp_path, TEXT, "a text")


def start_run(folder: Path, config: dict[str, Any], refuses: bool) -> None:
    """Prepares a run that makes tokens and a tokenizer, and may be refused after that."""
    with records.prepared(folder, {"stage": "a", **config}, ("stage",), ("tokens", "notes", "tokenizer")):
        (folder / "tokens").mkdir(exist_ok=True)
        (folder / "tokenizer").touch()
        if refuses:
            raise UserError("no")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_refused_start_removes_what_it_made_and_nothing_else(tmp_path):
    (tmp_path / "notes").touch()

    with pytest.raises(UserError, match="no"):
        start_run(tmp_path, {"b": 1}, refuses=True)

    assert names_in(tmp_path) == ["notes"]


def test_a_refused_start_of_a_begun_run_removes_nothing(tmp_path):
    start_run(tmp_path, {"b": 1}, refuses=False)
    (tmp_path / "resume").mkdir()
    config = (tmp_path / "config.json").read_bytes()

    with pytest.raises(UserError, match="no"):
        start_run(tmp_path, {"b": 2}, refuses=True)

    assert (tmp_path / "config.json").read_bytes() == config
    assert names_in(tmp_path) == ["config.json", "resume", "tokenizer", "tokens", "versions.json"]


@pytest.fixture
def exported(tmp_path, in_memory):
    """A function that exports a run's used evaluation, the second of three, and the list of what it wrote."""
    subtracted(tmp_path, Subtractor(aim=85), patience=1)
    path = tmp_path / "model" / "about.json"
    written = []

    def write(items, trained):
        written.append((items, trained["evaluation"], trained["step"]))
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(trained))

    def export():
        assert records.export(tmp_path, path, {"about": JSON}, write) == path.parent

    return export, written, path


def test_the_used_evaluation_is_exported_once(exported):
    export, written, _ = exported

    export()
    export()

    assert written == [({"about": {"sums": [6, 9]}}, 1, 3)]


def test_an_export_of_another_evaluation_is_replaced(exported):
    export, written, path = exported
    export()
    path.write_text(json.dumps({"evaluation": 0}))

    export()

    assert written == [({"about": {"sums": [6, 9]}}, 1, 3)] * 2


def test_an_export_that_names_its_evaluation_inside_stays(exported):
    export, written, path = exported
    export()
    path.write_text(json.dumps({"trained": json.loads(path.read_text())}))

    export()

    assert len(written) == 1
