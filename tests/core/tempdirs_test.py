"""Engines leave no folders behind."""

from __future__ import annotations

import os
import subprocess
import sys

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
