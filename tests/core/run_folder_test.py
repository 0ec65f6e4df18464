"""Run folders: whose run a folder holds, what is written down about it, and who may use it."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core import run_folder
from motif_jax.core.errors import UserError

IDENTITY = ["seed", "model"]


@pytest.fixture
def config() -> ConfigDict:
    return ConfigDict({"seed": 1, "model": {"size": 3, "layers": (1, 2)}, "workers": 4})


@pytest.fixture
def run(tmp_path: Path, config: ConfigDict) -> Path:
    """A run of `config`, identified by its seed and model."""
    run = tmp_path / "run"
    run_folder.prepare(run, config, identity=IDENTITY)
    return run


def test_keys_outside_the_identity_may_change(run: Path, config: ConfigDict) -> None:
    config.workers = 8

    run_folder.prepare(run, config, identity=IDENTITY)

    assert run_folder.read_config(run)["workers"] == 8


def test_a_changed_identity_key_is_named_with_both_values(run: Path, config: ConfigDict) -> None:
    config.model.size = 5

    with pytest.raises(UserError, match=r"\(model\.size: 3 before, 5 now\)"):
        run_folder.prepare(run, config, identity=IDENTITY)


def test_a_free_key_of_the_identity_may_change(run: Path, config: ConfigDict) -> None:
    config.model.size = 5

    run_folder.prepare(run, config, identity=IDENTITY, free=["model.size"])


def test_versions_and_the_command_are_written_down(run: Path) -> None:
    content = json.loads((run / "versions.json").read_text())

    assert set(content) == {
        "versions",
        "git_revision",
        "command",
        "directory",
        "platform",
        "started",
    }
    assert content["versions"]["python"] == platform.python_version()
    assert content["versions"]["numpy"] == np.__version__
    assert content["command"] == shlex.join(sys.argv)
    assert content["directory"] == os.getcwd()


def test_the_run_of_another_stage_is_refused(run: Path, config: ConfigDict) -> None:
    run_folder.write_config(run, {"stage": "other"})

    line = f"^--workdir={run} holds a run of other, this is None: choose another --workdir$"
    with pytest.raises(UserError, match=line):
        run_folder.check_identity(run, config)


@pytest.mark.parametrize("content", ['{"seed": 1}', '{"layout": 0, "seed": 1}'])
def test_a_folder_of_another_layout_is_refused(run: Path, config: ConfigDict, content: str) -> None:
    (run / "config.json").write_text(content)

    with pytest.raises(UserError, match=f"^{run} is a run folder of layout (None|0), this"):
        run_folder.read_config(run)
    with pytest.raises(UserError, match="is a run folder of layout"):
        run_folder.prepare(run, config)
    assert (run / "config.json").read_text() == content


def test_differences_name_changed_lost_and_new_keys() -> None:
    before = {"a": {"b": 1}, "gone": None}
    now = {"a": {"b": 2}, "new": [1]}

    assert run_folder.differences(before, now, ["a", "gone", "new"]) == [
        "a.b: 1 before, 2 now",
        "gone: None before, absent now",
        "new: absent before, [1] now",
    ]


def test_differences_are_those_of_the_identity_without_free_keys() -> None:
    """`ab` begins as `a` does and is another key."""
    before = {"a": {"c": 2}, "ab": 1}
    now = {"a": {"c": 3}, "ab": 2}

    assert run_folder.differences(before, now, ["a"], ["a.c"]) == []


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        ('{"x": 1, "y": 2}', {"x": 3, "y": 2}, "options.x: 1 before, 3 now"),
        ("{", "[1]", "options: { before, [1] now"),
        (None, "{}", "options: None before, absent now"),
    ],
)
def test_options_in_json_are_compared_by_their_values(
    before: object, now: object, line: str
) -> None:
    assert run_folder.differences({"options": before}, {"options": now}, ["options"]) == [line]


def test_arguments_of_an_environment_are_compared_by_their_values() -> None:
    before = {"environment": {"kwargs": '{"size": 4, "wet": true}'}}
    respelt = {"environment": {"kwargs": '{"wet":true,"size":4}'}}
    larger = {"environment": {"kwargs": '{"wet":true,"size":8}'}}

    assert run_folder.differences(before, respelt, ["environment"]) == []
    assert run_folder.differences(before, larger, ["environment"]) == [
        "environment.kwargs.size: 4 before, 8 now"
    ]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package's sources."""
    monkeypatch.setattr(run_folder.resources, "ROOT", tmp_path)
    return tmp_path


def test_the_revision_is_that_of_a_clone(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sources / ".git").mkdir()
    folders: list[Path] = []

    def git(command: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        folders.append(cwd)
        return subprocess.CompletedProcess(command, 0, stdout="1f+changes\n")

    monkeypatch.setattr(subprocess, "run", git)

    assert run_folder.git_revision() == "1f+changes"
    assert folders == [sources]


def test_without_a_clone_the_revision_is_unknown(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("git was asked"))

    assert run_folder.git_revision() == "unknown"


def test_a_revision_is_unknown_where_git_is_too_slow(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sources / ".git").mkdir()

    def git(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 20)

    monkeypatch.setattr(subprocess, "run", git)

    assert run_folder.git_revision() == "unknown"


def test_a_second_process_in_one_folder_is_refused(tmp_path: Path) -> None:
    first = ConfigDict({"stage": "toy", "seed": 1})
    second = ConfigDict({"stage": "toy", "seed": 2})

    refused = pytest.raises(UserError, match=f"{tmp_path} is in use by process {os.getpid()}")
    with run_folder.opened(tmp_path, first), refused, run_folder.opened(tmp_path, second):
        pass

    assert run_folder.read_config(tmp_path)["seed"] == 1


def test_a_folder_is_free_when_its_process_has_closed_it(tmp_path: Path) -> None:
    with run_folder.opened(tmp_path, ConfigDict({"stage": "toy", "seed": 1})):
        pass

    with run_folder.opened(tmp_path, ConfigDict({"stage": "toy", "seed": 2})):
        assert run_folder.read_config(tmp_path)["seed"] == 2


def test_a_resumed_run_removes_files_of_killed_writers(tmp_path: Path) -> None:
    names = (".a.json.x.tmp", "recordings/.episode.json.x.tmp", "plots/.a.png.x.tmp")
    unfinished = [tmp_path / name for name in names]
    answers = tmp_path / "answers" / ".theirs.x.tmp"
    for path in (*unfinished, answers):
        path.parent.mkdir(exist_ok=True)
        path.touch()

    run_folder.prepare(tmp_path, ConfigDict({"seed": 1}))

    assert not [path for path in unfinished if path.exists()]
    assert answers.exists(), "the store of answers may be another process's"


def test_a_relative_path_begins_where_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "a"
    for folder in ("dataset", "runs/dataset", "runs/r3"):
        (started / folder).mkdir(parents=True)
    monkeypatch.chdir(started)
    run_folder.describe(Path("runs/r3"), {"stage": "train_reward"})
    monkeypatch.chdir(tmp_path)

    assert run_folder.stored_folder(started / "runs/r3", "dataset") == started / "dataset"
    # Moved with its data: what lies beside it comes first.
    (tmp_path / "b").mkdir()
    (started / "runs").rename(tmp_path / "b" / "runs")
    moved = tmp_path / "b" / "runs" / "r3"
    assert run_folder.stored_folder(moved, "dataset") == tmp_path / "b" / "runs" / "dataset"
