"""The files of an offline training: runs that are refused for other data or devices, exports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from motif_jax.core.checkpoints import JSON
from motif_jax.core.devices.hosts import Hosts
from motif_jax.core.errors import UserError
from motif_jax.core.training import run_files
from tests.core.training.subtraction import FileCheckpoints, Subtractor, train

TEXT = {"the text": "a"}
OTHER_TEXT = {"the text": "b", "more": "c"}
TWO_DEVICES = {run_files.DEVICES: "2"}
THREE_DEVICES = {run_files.DEVICES: "3"}

# Digests of a run and of the data now, and the message after the folder's name.
REFUSED = [
    (TEXT, OTHER_TEXT, "was trained on other more, the text than a text has now: use the same"),
    (TEXT, {}, "was trained on other the text than a text has now"),
    # Each device draws dropout of its own.
    (TWO_DEVICES, THREE_DEVICES, "was trained on other number of devices than a text has now"),
]


@pytest.fixture
def stopped(tmp_path: Path, file_checkpoints: None) -> FileCheckpoints:
    """The resume points of a run in `tmp_path` that was stopped after its fourth step."""
    is_done = train(tmp_path, Subtractor(stop_at=3))
    assert not is_done
    return FileCheckpoints(tmp_path / run_files.RESUME)


def replace_digests(checkpoints: FileCheckpoints, digests: Mapping[str, str]) -> None:
    """Writes the checkpoint of step 4 as a run on data of these digests does."""
    items = checkpoints.items[4]
    items["position"]["digests"] = digests
    checkpoints.save(4, items)


@pytest.mark.parametrize(("before", "now", "message"), REFUSED)
def test_a_run_on_other_data_or_devices_is_refused(
    tmp_path: Path,
    stopped: FileCheckpoints,
    before: dict[str, str],
    now: dict[str, str],
    message: str,
) -> None:
    replace_digests(stopped, before)

    task = Subtractor()
    task.digests = now

    with pytest.raises(UserError, match=f"^{tmp_path} {message}"):
        train(tmp_path, task)


@pytest.mark.usefixtures("stopped")
def test_hosts_that_see_different_checkpoints_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hosts, "gather", lambda host, value: [value, "checkpoints/1"])

    with pytest.raises(
        UserError,
        match=rf"^--workdir={tmp_path} must be one folder that all hosts share: its newest "
        r"checkpoint: host 0 sees resume/4, host 1 sees checkpoints/1$",
    ):
        train(tmp_path, Subtractor())


class ExportedRun:
    """A run whose used evaluation is the second of three, and the exports that were written of it.

    Attributes:
      description: the JSON file of the exported folder.
      written: of each export its items, and number and step of its evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.description = folder / "model" / "about.json"
        self.written: list[tuple[dict[str, Any], int, int]] = []

    def export(self) -> Path:
        return run_files.export(self.folder, self.description, {"about": JSON}, self._write)

    def _write(self, items: dict[str, Any], trained: dict[str, Any]) -> None:
        self.written.append((items, trained["evaluation"], trained["step"]))
        self.description.parent.mkdir(exist_ok=True)
        self.description.write_text(json.dumps(trained))


EXPORT = ({"about": {"sums": [6, 9]}}, 1, 3)


@pytest.fixture
def run(tmp_path: Path, file_checkpoints: None) -> ExportedRun:
    # The second evaluation has the loss 85, and so no distance to the aim.
    train(tmp_path, Subtractor(aim=85), patience=1)
    return ExportedRun(tmp_path)


def test_an_export_has_the_used_evaluation_in_its_folder(run: ExportedRun) -> None:
    folder = run.export()

    assert folder == run.description.parent
    assert run.written == [EXPORT]


def test_the_used_evaluation_is_exported_once(run: ExportedRun) -> None:
    run.export()
    run.export()

    assert run.written == [EXPORT]


def test_what_an_export_has_replaced_is_removed(run: ExportedRun) -> None:
    folder = run.export()
    replaced = folder.with_name(f"{folder.name}.replaced")
    replaced.mkdir()  # of a writer that was killed

    run.export()

    assert not replaced.exists()


def test_an_export_of_another_evaluation_is_replaced(run: ExportedRun) -> None:
    run.export()
    run.description.write_text(json.dumps({"evaluation": 0}))

    run.export()

    assert run.written == [EXPORT, EXPORT]


def test_an_export_that_names_its_evaluation_inside_stays(run: ExportedRun) -> None:
    run.export()
    description = json.loads(run.description.read_text())
    run.description.write_text(json.dumps({"trained": description}))

    folder = run.export()

    assert folder == run.description.parent
    assert run.written == [EXPORT]
