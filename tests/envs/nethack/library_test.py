from __future__ import annotations

import gc
import hashlib
import itertools
import os
import sys

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack import library
from motif_jax.envs.nethack.engine import DLPATH, NetHackEngine
from motif_jax.envs.nethack.game import END_DEATH, END_LIMIT, Game, game_seeds

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="code is shared on x86-64 Linux only",
)


def test_games_that_share_code_play_like_freshly_loaded_ones():
    """Left in the middle, ended by death, and quit, in turns: no game finds anything of another."""
    engines = [NetHackEngine(shared_code=shared) for shared in (True, True, True, False)]
    *shared, fresh = games = [Game("NetHackScore-v1", engine, 400, {}) for engine in engines]
    ends = set()

    def play(game, seed, steps):
        rng = np.random.default_rng(seed)
        digest = hashlib.blake2b()
        shown = game.buffers
        for action in rng.choice([*range(8), 19, 20, 21], steps).tolist():
            reward, end = game.advance(action)
            digest.update(repr((reward, end)).encode() + shown.now.memory + shown.message_memory)
            digest.update(shown.tty_chars.tobytes() + shown.tty_colors.tobytes())
            yield digest.digest()
            if end:
                ends.add(game.info()["end"])
                return

    for episode in range(5):
        seeds = [100 * episode + number for number in range(3)]
        steps = (30, 150, 400)
        for game, seed in zip(shared, seeds, strict=True):
            game.start(seed)
        screens = list(itertools.zip_longest(*map(play, shared, seeds, steps)))
        for number, (seed, limit) in enumerate(zip(seeds, steps, strict=True)):
            fresh.start(seed)
            of_one = [step[number] for step in screens if step[number] is not None]
            assert list(play(fresh, seed, limit)) == of_one
    assert {END_DEATH, END_LIMIT} <= ends
    for game in games:
        game.close()


def code_inodes():
    """Inodes of the files that executable pages of the engine come from."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        lines = [line.split(None, 5) for line in maps]
    return [int(of[4]) for of in lines if len(of) == 6 and "x" in of[1] and "nethack" in of[5]]


@pytest.mark.slow
def test_code_pages_come_from_the_installed_file():
    inode = os.stat(DLPATH).st_ino
    gc.collect()  # games of earlier tests that nobody has closed
    before = code_inodes()
    engines = [NetHackEngine(), NetHackEngine()]
    for engine in engines:
        engine.start(*game_seeds(0))
    loaded = code_inodes()
    assert loaded.count(inode) >= before.count(inode) + 2
    assert len(loaded) == len(before) + 2, "and from nowhere else"
    engines.pop().close()
    del engine, engines  # an engine that nobody closes goes too
    gc.collect()
    assert code_inodes() == before


def arrays_of(engine):
    more = engine.more.values(), [engine.buffers.memory.screens]
    return list(itertools.chain(engine.buffers.engine_arrays().values(), *more))


def test_a_game_finds_nothing_of_what_was_there_before():
    engine = NetHackEngine(more_fields=("internal", "inv_strs"))
    fresh = NetHackEngine(shared_code=False, more_fields=("internal", "inv_strs"))
    fresh.start(*game_seeds(5))
    for _ in range(2):
        for array in arrays_of(engine):
            array.fill(0x55)
        for name in ("record", "logfile", "xlogfile"):
            (engine.folder / name).write_text("best")
        engine.start(*game_seeds(5))
        assert [array.tobytes() for array in arrays_of(engine)] == [
            a.tobytes() for a in arrays_of(fresh)
        ]
        assert [
            (engine.folder / name).read_text() for name in ("record", "logfile", "xlogfile")
        ] == [""] * 3
    engine.close()
    fresh.close()


SLOWER = "engines loaded again for each game, which is slower"


def run_on_arm(monkeypatch):
    """Lets the system say that it runs on another processor, where libraries cannot be shared."""
    arm = os.uname_result(("Linux", "host", "6.1", "1", "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: arm)


def test_a_system_that_can_share_libraries_needs_no_remark():
    assert registry.spec("NetHackScore-v1").remark == ""


def test_another_c_library_is_reported_as_slower(monkeypatch):
    monkeypatch.setattr(library.platform, "libc_ver", lambda: ("", ""))

    remark = registry.spec("NetHackScore-v1").remark

    assert remark.startswith(f"{SLOWER} (only of the GNU C library is it known")


def test_another_processor_is_reported_as_slower(monkeypatch):
    run_on_arm(monkeypatch)

    remark = registry.spec("NetHackScore-v1").remark

    assert remark.startswith(f"{SLOWER} (only where Linux runs on x86-64")


def test_games_are_played_where_libraries_cannot_be_shared(monkeypatch):
    run_on_arm(monkeypatch)
    engine = NetHackEngine()

    engine.start(*game_seeds(3))

    assert engine.in_normal_game()
    engine.close()


def test_the_clock_of_the_wall_sets_no_prices(monkeypatch):
    """Shops price worthless glass by the second in which a game began; here by its seed."""
    births = []
    paths = []

    def set_long(path, name, value):
        paths.append(path)
        births.append(value)

    monkeypatch.setattr("motif_jax.envs.nethack.engine.set_long", set_long)
    shared = NetHackEngine()
    fresh = NetHackEngine(shared_code=False)
    for seed in (3, 4, 3):
        shared.start(*game_seeds(seed))
        fresh.start(*game_seeds(seed))
        assert births[-1] == shared.library.long("ubirthday").value
    assert births == [1 + game_seeds(seed)[0] % (1 << 30) for seed in (3, 4, 3)]
    for call in (shared.library.long, lambda name: library.set_long(paths[0], name, 0)):
        with pytest.raises(ValueError, match="no_such_name"):
            call("no_such_name")
    shared.close()
    fresh.close()
