from __future__ import annotations

import dataclasses
import hashlib
import os
import zlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from motif_jax.core import tempdirs
from motif_jax.envs.minihack import descriptions
from motif_jax.envs.minihack.environment import make_spec
from motif_jax.envs.minihack.levels import LEVELS
from motif_jax.envs.nethack import level_engine
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.level_engine import LevelEngine
from motif_jax.envs.spec import RUNNING
from tests.conftest import load_golden
from tests.envs.playing import started, told
from tests.recorded_outputs import assert_matches_packed_recording

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
        checksum = zlib.crc32("".join(described).encode("latin-1"))
        rules["describe"] = [len(text) for text in described], checksum
        return "\n".join(f"{name} {value}" for name, value in rules.items())

    assert_matches_packed_recording(
        "minihack_levels", {name: said(level) for name, level in LEVELS.items()}, record
    )


def test_every_level_compiles_and_starts():
    engine = LevelEngine(Buffers(), options=("pettype:none",), spawn_monsters=False)
    for name, level in LEVELS.items():
        assert len(set(level.keys)) == len(level.keys), name
        engine.load(level.describe(1))
        engine.start(1, 2)
        assert engine.buffers.program_state[3], name
    engine.close()


def test_the_step_limit_is_the_levels_or_a_shorter_one():
    for options, limit in ({}, 100), ({"max_episode_steps": 10}, 10), ({"max_episode_steps": 5000}, 100):
        env = gymnasium.make("motif_jax/MiniHack-Room-5x5-v0", **options)
        env.reset(seed=1)
        assert next(step for step in range(1, 1000) if env.step(0)[3]) == limit


def test_what_the_compiler_refuses_is_one_line_and_the_old_level_stays(tmp_path, monkeypatch, record):
    engine, run = LevelEngine(Buffers(), spawn_monsters=False), []
    monkeypatch.setattr(
        level_engine, "_run", lambda *given, by=level_engine._run, **at: run.append(given) or by(*given, **at)
    )
    for size in (5, 5, 15):
        engine.load(descriptions.room(size))
    assert run == [("lev_comp", "level.des")] * 2
    said = {"nonsense": told(engine.load, "MAZE: nonsense"), "name": told(make_spec, "MiniHack")}
    engine.start(1, 2)
    monkeypatch.setattr(level_engine, "HACKDIR", str(tmp_path))
    said["none"] = told(engine.load, "")
    (tmp_path / "lev_comp").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "lev_comp").chmod(0o700)
    (tmp_path / "dat").mkdir()
    (tmp_path / "dat" / "dungeon.def").write_text("DUNGEON\n")
    said |= {"code": told(engine.load, ""), "dungeon": told(level_engine.data_library.__wrapped__)}
    assert_matches_packed_recording("minihack_refusals", said, record)
    engine.close()


def test_games_leave_no_descriptors_and_no_files():
    env, out = started("MiniHack-MultiRoom-N2-v0")
    folder = env._game._level_engine.folder
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
