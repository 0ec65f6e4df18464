"""Engines leave no folders behind."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from motif_jax.core import tempdirs

_PLAY = (
    "import sys, time; from motif_jax.envs import registry; from motif_jax.envs.spec import empty_observation;"
    "env = registry.make('NetHackScore-v1'); env.reset(0, empty_observation(env.spec));"
    "print('playing', flush=True); sys.stdin.read()"
)


def start(repository, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", _PLAY], cwd=repository, env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "playing\n"
    return process


def own_folders(folder):
    return {path.name: list(path.glob("nle*")) for path in folder.glob("motif_jax_games_*")}


def test_folders_go_with_their_process(repository, tmp_path):
    first = start(repository, tmp_path)
    second = start(repository, tmp_path)
    folders = own_folders(tmp_path)
    assert [len(games) for games in folders.values()] == [1, 1]
    first.kill()
    first.communicate()
    third = start(repository, tmp_path)
    now = own_folders(tmp_path)
    assert (len(now), len(set(folders) & set(now))) == (2, 1)
    for process in (second, third):
        process.communicate("")
        assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a folder of this user's that a killed process left, to be made by a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"motif_jax_games_{os.getuid()}_old"


def test_a_folder_that_a_killed_process_left_is_removed(old_folder: Path) -> None:
    old_folder.mkdir()
    os.utime(old_folder, (0, 0))
    tempdirs.remove_abandoned()
    assert not old_folder.exists()


def test_a_file_of_such_a_name_stays(old_folder: Path) -> None:
    old_folder.touch()
    os.utime(old_folder, (0, 0))
    tempdirs.remove_abandoned()
    assert old_folder.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_another_users_folder_stays(old_folder: Path) -> None:
    old_folder.mkdir(mode=0o700)
    os.chown(old_folder, 65534, 65534)
    os.utime(old_folder, (0, 0))
    tempdirs.remove_abandoned()
    assert old_folder.exists()


def test_folders_without_locks_stay(old_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    old_folder.mkdir()
    os.utime(old_folder, (0, 0))
    monkeypatch.setattr(fcntl, "flock", refuse)
    tempdirs.remove_abandoned()
    assert old_folder.exists()
