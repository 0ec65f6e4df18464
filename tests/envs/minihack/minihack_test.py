"""MiniHack's tasks: against the published classes, seeds, rules, stages' names, and what a level leaves behind."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from motif_jax.envs.minihack import descriptions, multi_room
from motif_jax.envs.minihack.environment import make_spec
from motif_jax.envs.minihack.levels import LEVELS
from motif_jax.envs.nethack import level_engine
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.level_engine import LevelEngine
from motif_jax.envs.spec import RUNNING, EngineError
from motif_jax.support import tempdirs
from motif_jax.support.errors import UserError
from tests.conftest import load_golden
from tests.envs.playing import started
from tests.recorded_outputs import compared

FIELDS = ("glyphs", "tty_chars", "tty_colors")
SHOWN = (*FIELDS, "blstats", "message")


def digest_of(observation):
    parts = (np.ascontiguousarray(observation[name].astype("<i4")).tobytes() for name in SHOWN)
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


@pytest.mark.slow
def test_episodes_of_recorded_keys_are_the_published_ones():
    for episode in load_golden("minihack.json"):
        env, out = started(episode["name"], episode["seed"], fields=FIELDS)
        seen, rewards, end = [digest_of(out)], [], RUNNING
        for key in bytes.fromhex(episode["keys"]):
            assert end == RUNNING
            reward, end = env.step(env.spec.action_keys.index(key), out)
            seen.append(digest_of(out))
            rewards.append(round(reward, 6))
        # But for the last one, which MiniHack shows after it has quit the game.
        digest = hashlib.blake2b(b"".join(seen[:-1]), digest_size=16).hexdigest()
        found = (digest, rewards, env.episode_info()["end"])
        assert found == (episode["observations"], episode["rewards"], episode["end"])
        env.close()


def test_levels_and_their_rules_are_the_recorded_ones(record):
    def said(level):
        rules = {field.name: getattr(level, field.name) for field in dataclasses.fields(level)}
        described = [level.describe(seed) for seed in (1, 2)]
        rules["describe"] = (
            [len(text) for text in described],
            zlib.crc32("".join(described).encode("latin-1")),
        )
        return "\n".join(f"{name} {value}" for name, value in rules.items())

    compared("minihack_levels", {name: said(level) for name, level in LEVELS.items()}, record)


def test_every_level_compiles_and_starts():
    engine = LevelEngine(Buffers(), options=("pettype:none",), spawn_monsters=False)
    for name, level in LEVELS.items():
        assert len(set(level.keys)) == len(level.keys), name
        engine.load(level.describe(1))
        engine.start(1, 2)
        assert engine.buffers.program_state[3], name
    engine.close()
    assert len(LEVELS) == 93


def test_rooms_in_a_row_are_drawn_from_the_seed():
    level = multi_room.describe(3, rooms=2, room_size=4, doors="locked", monsters=1)
    rows = ["||||", "|..|", "|..|", "||+||", " |..|", " |..|", " ||||"]
    lines = ("STAIR:(42, 4),down", "BRANCH:(40,2,40,2),(39,1,39,1)", "DOOR:locked,(41, 3)", "WALLIFY")
    map_ = "\n".join(f"{' ' * 39}{row:37}" for row in rows)
    assert level == descriptions.maze(map_, *lines, descriptions.ANYONE)
    lava = multi_room.describe(3, rooms=2, room_size=4, doors="locked", wall="L", monsters=1)
    assert lava == level.replace("|", "L")


def test_the_step_limit_is_the_levels_or_a_shorter_one():
    def length(**options):
        env = gymnasium.make("motif_jax/MiniHack-Room-5x5-v0", **options)
        env.reset(seed=1)
        return next(step for step in range(1, 1000) if env.step(0)[3])

    assert length() == 100
    assert length(max_episode_steps=10) == 10
    assert length(max_episode_steps=5000) == 100


def test_what_the_compiler_refuses_is_one_line_and_the_old_level_stays(tmp_path, monkeypatch):
    engine, run = LevelEngine(Buffers(), spawn_monsters=False), []
    monkeypatch.setattr(
        level_engine, "_run", lambda *given, by=level_engine._run, **at: run.append(given) or by(*given, **at)
    )
    for size in (5, 5, 15):
        engine.load(descriptions.room(size))
    assert run == [("lev_comp", "level.des")] * 2
    with pytest.raises(EngineError, match=r"^nle's lev_comp level.des: level.des: line 1.*nonsense"):
        engine.load("MAZE: nonsense")
    engine.start(1, 2)
    monkeypatch.setattr(level_engine, "HACKDIR", str(tmp_path))
    with pytest.raises(EngineError, match=r"^nle's lev_comp does not start: No such file or directory$"):
        engine.load("")
    (tmp_path / "lev_comp").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "lev_comp").chmod(0o700)
    with pytest.raises(EngineError, match=r"^nle's lev_comp level\.des: exit code 3$"):
        engine.load("")
    (tmp_path / "dat").mkdir()
    (tmp_path / "dat" / "dungeon.def").write_text("DUNGEON\n")
    with pytest.raises(EngineError, match=r"^nle's dungeon.def has another form than that of NetHack 3.6$"):
        level_engine.data_library.__wrapped__()
    engine.close()
    with pytest.raises(
        UserError, match=r"^there is no MiniHack task 'MiniHack'; docs/environments.md has their names$"
    ):
        make_spec("MiniHack")


def test_games_leave_no_descriptors_and_no_files():
    env, out = started("MiniHack-MultiRoom-N2-v0")
    folder = env._game._levels.folder
    # It goes with the process, or with the next one after a SIGKILL.
    assert tempdirs.hold(folder.parent) is None

    def left():
        opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [name for name in opened if str(folder) in name], sorted(folder.iterdir())

    before = left()
    for seed in range(1, 10):
        env.reset(seed, out)
        env.step(0, out)
    assert left() == before
    env.close()
    assert not folder.exists()
