"""Sharing the engine's code between games."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from motif_jax.envs.nethack import library
from motif_jax.envs.nethack.engine import DLPATH, NetHackEngine
from motif_jax.envs.nethack.game import game_seeds

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="code is shared on x86-64 Linux only"
)


def screens(engine, keys):
    engine.start(*game_seeds(1))
    seen = []
    for key in keys:
        engine.step(key)
        seen.append(engine.buffers.tty_chars.tobytes() + engine.buffers.now.memory.tobytes())
    return seen


def test_games_are_the_same_with_and_without():
    keys = [ord(key) for key in "jjjjllllkkkkhhhhssssjlkhjlkh"]
    shared, private = NetHackEngine(shared_code=True), NetHackEngine(shared_code=False)
    assert screens(shared, keys) == screens(private, keys)
    assert screens(shared, keys) == screens(private, keys)
    shared.close()
    private.close()


def code_inodes():
    """Inodes of the files that executable pages of the engine come from."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        lines = [line.split(None, 5) for line in maps]
    return [
        int(fields[4]) for fields in lines if len(fields) == 6 and "x" in fields[1] and "nethack" in fields[5]
    ]


def test_code_pages_come_from_the_installed_file():
    inode = os.stat(DLPATH).st_ino
    gc.collect()  # games of earlier tests that nobody has closed
    before = code_inodes().count(inode)
    engines = [NetHackEngine(), NetHackEngine()]
    for engine in engines:
        engine.start(*game_seeds(0))
    assert code_inodes().count(inode) >= before + 2
    for engine in engines:
        engine.close()
    assert code_inodes().count(inode) == before


def test_segments_are_those_that_nobody_writes():
    segments = library.read_only_segments(DLPATH)
    assert any(segment.protection & 4 for segment in segments)
    for segment in segments:
        assert not segment.protection & 2
        assert segment.offset % 4096 == segment.address % 4096 == segment.length % 4096 == 0


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file.so"
    path.write_bytes(b"text" * 100)
    with pytest.raises(ValueError, match="ELF"):
        library.read_only_segments(path)


def test_the_clock_of_the_wall_sets_no_prices():
    """Shops price worthless glass by the second in which a game began; here by its seed."""
    engine, births = NetHackEngine(), []
    for seed in (3, 4, 3):
        engine.start(*game_seeds(seed))
        births.append(library.set_long(engine._game.dlpath, "ubirthday", 0))
    assert births[0] == births[2] != births[1]
    with pytest.raises(ValueError, match="no_such_name"):
        library.set_long(engine._game.dlpath, "no_such_name", 0)
    engine.close()
