"""Engines leave no folders behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from motif_jax.support import tempdirs

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


def test_what_nobody_holds_any_more_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tempdirs._process_folder.cache_clear()
    prefix = f"motif_jax_games_{os.getuid()}_"
    for name in (
        f"{prefix}young",
        f"{prefix}old",
        f"{prefix}held",
        f"{prefix}left",
        "motif_jax_games_another",
    ):
        (tmp_path / name).mkdir()
    descriptors = [tempdirs.hold(tmp_path / f"{prefix}{name}") for name in ("held", "left")]
    os.close(descriptors[1])
    assert tempdirs.hold(tmp_path / "absent") is tempdirs.hold(tmp_path / f"{prefix}held") is None
    for name in ("old", "held"):
        os.utime(tmp_path / f"{prefix}{name}", (1, 1))
    with tempdirs.own_folders() as own:
        assert (os.path.dirname(own), tempfile.gettempdir()) == (str(tmp_path), own)
        assert os.path.isfile(os.path.join(own, "lock"))
    assert tempfile.gettempdir() == str(tmp_path)
    kept = {f"{prefix}young", f"{prefix}held", "motif_jax_games_another"}
    assert set(os.listdir(tmp_path)) == {*kept, os.path.basename(own)}
    tempdirs.remove_own()
    assert set(os.listdir(tmp_path)) == kept
    tempdirs._process_folder.cache_clear()
    os.close(descriptors[0])


def test_folders_go_with_their_process(repository, tmp_path):
    first, second = start(repository, tmp_path), start(repository, tmp_path)
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
