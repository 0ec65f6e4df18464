from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from motif_jax.core import tempdirs
from motif_jax.envs.minihack import descriptions
from motif_jax.envs.minihack.levels import LEVELS, SolvingEvent
from motif_jax.envs.nethack import level_engine
from motif_jax.envs.nethack.buffers import Buffers
from motif_jax.envs.nethack.level_engine import LevelEngine
from motif_jax.envs.spec import RUNNING
from tests.conftest import load_golden
from tests.envs.playing import error_line, started

FIELDS = ("glyphs", "tty_chars", "tty_colors")
SHOWN = (*FIELDS, "blstats", "message")


def digest_of(observation):
    parts = (np.ascontiguousarray(observation[name].astype("<i4")).tobytes() for name in SHOWN)
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


@pytest.mark.slow
@pytest.mark.parametrize(
    "episode", load_golden("minihack.json"), ids=lambda case: f"{case['name']}-{case['seed']}"
)
def test_episodes_of_recorded_keys_are_the_published_ones(episode):
    env, out = started(episode["name"], episode["seed"], fields=FIELDS)
    digests = [digest_of(out)]
    rewards = []
    end = RUNNING
    for key in bytes.fromhex(episode["keys"]):
        assert end == RUNNING
        reward, end = env.step(env.spec.action_keys.index(key), out)
        digests.append(digest_of(out))
        rewards.append(round(reward, 6))
    info = env.episode_info()
    env.close()

    # But for the last observation, which MiniHack shows after it has quit the game.
    digest = hashlib.blake2b(b"".join(digests[:-1]), digest_size=16).hexdigest()
    assert digest == episode["observations"]
    assert rewards == episode["rewards"]
    assert info["end"] == episode["end"]


ROGUE = "rog-hum-cha-mal"
CAVEMAN = "cav-hum-neu-mal"
KNIGHT = "kni-hum-law-fem"
# MiniHack 1.0.2: pattern of the name between "MiniHack-" and "-v0" -> step limit, number of
# actions, hero.
RULES = {
    r"Room-.*5x5": (100, 8, ROGUE),
    r"Room-.*15x15": (300, 8, ROGUE),
    r"KeyRoom-.*S5": (200, 10, ROGUE),
    r"KeyRoom-.*S15": (400, 10, ROGUE),
    r"MultiRoom-N2-(Locked|Extreme)": (40, 10, ROGUE),
    r"MultiRoom-N4-(Locked|Extreme)": (120, 10, ROGUE),
    r"MultiRoom-N6-(Locked|Extreme)": (240, 10, ROGUE),
    r"MultiRoom-N2.*": (40, 8, ROGUE),
    r"MultiRoom-N4.*": (120, 8, ROGUE),
    r"MultiRoom-N6.*": (240, 8, ROGUE),
    r"MultiRoom-N10.*": (360, 8, ROGUE),
    r"Corridor-R[235]": (1000, 11, ROGUE),
    r"River.*": (350, 8, ROGUE),
    r"CorridorBattle.*": (350, 8, KNIGHT),
    r"Labyrinth-Big": (1000, 8, ROGUE),
    r"Labyrinth-Small": (400, 8, ROGUE),
    r"MazeWalk-.*\b9x9": (200, 8, ROGUE),
    r"MazeWalk-.*(15x15|45x19)": (1000, 8, ROGUE),
    r"HideNSeek-Big": (400, 8, ROGUE),
    r"HideNSeek.*": (200, 8, ROGUE),
    r"Quest-Easy": (500, 85, CAVEMAN),
    r"Quest-Medium": (1000, 85, KNIGHT),
    r"Quest-Hard": (1000, 85, CAVEMAN),
    r"(ClosedDoor|LockedDoor|Eat|Pray|Sink|Wield|Wear|PutOn|Zap|Read).*": (250, 85, CAVEMAN),
}


def short_name(name):
    return name.removeprefix("MiniHack-").removesuffix("-v0")


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_has_the_published_limit_actions_and_hero(name):
    level = LEVELS[name]
    rules = next(
        rules for pattern, rules in RULES.items() if re.fullmatch(pattern, short_name(name))
    )

    assert (level.max_steps, len(level.keys), level.character) == rules
    assert len(set(level.keys)) == len(level.keys)


def test_levels_with_all_actions_leave_questions_to_the_agent():
    asking = {name for name, level in LEVELS.items() if level.asks}

    assert asking == {name for name, level in LEVELS.items() if len(level.keys) == 85}


def test_only_key_rooms_unlock_doors_by_applying_a_key():
    assert {name for name, level in LEVELS.items() if level.unlocks} == {
        "MiniHack-KeyRoom-Fixed-S5-v0",
        "MiniHack-KeyRoom-S5-v0",
        "MiniHack-KeyRoom-Dark-S5-v0",
        "MiniHack-KeyRoom-S15-v0",
        "MiniHack-KeyRoom-Dark-S15-v0",
    }


def test_autopickup_is_off_in_key_rooms_and_skills():
    manual = {
        short_name(name).split("-")[0] for name, level in LEVELS.items() if not level.autopickup
    }

    skills = {
        "ClosedDoor",
        "LockedDoor",
        "Eat",
        "Pray",
        "Sink",
        "Wield",
        "Wear",
        "PutOn",
        "Zap",
        "Read",
    }
    assert manual == skills | {"KeyRoom", "Quest"}
    assert not LEVELS["MiniHack-Quest-Hard-v0"].autopickup
    assert LEVELS["MiniHack-Quest-Easy-v0"].autopickup


PRAY = 0xF0
QUAFF = ord("q")
ALTAR = 2386
SINK = 2389
EVENTS = {
    "Eat": SolvingEvent(
        (
            b"This apple is delicious",
            b"Blecch!  Rotten food!",
            b"last bite of your meal",
            b"Delicious!  Must be a Macintosh!",
            b"Core dumped.",
        )
    ),
    "Pray": SolvingEvent(key=PRAY, site=ALTAR),
    "Sink": SolvingEvent(key=QUAFF, site=SINK),
    "Wield": SolvingEvent((b"dagger welds itself to your hand!", b"dagger (weapon in hand)")),
    "Wear": SolvingEvent((b"You are now wearing a robe",)),
    "PutOn": SolvingEvent((b"amulet (being worn).",)),
    "Zap": SolvingEvent((b"The feeling subsides.",)),
    "Read": SolvingEvent((b"This scroll seems to be blank.",)),
}


def test_skills_end_by_their_act_and_other_levels_by_stairs():
    for name, level in LEVELS.items():
        assert level.event == EVENTS.get(short_name(name).split("-")[0]), name


@pytest.mark.parametrize(
    ("name", "line", "count"),
    [
        ("Room-5x5", "STAIR:(4, 4),down", 1),
        ("Room-15x15", "STAIR:(14, 14),down", 1),
        ("Room-Random-5x5", "STAIR:random,down", 1),
        ("Room-Monster-5x5", "MONSTER:random,random", 1),
        ("Room-Monster-15x15", "MONSTER:random,random", 3),
        ("Room-Trap-5x5", 'TRAP:"teleport",random', 1),
        ("Room-Ultimate-15x15", 'TRAP:"teleport",random', 15),
        ("Room-Dark-15x15", 'REGION:(0,0,15,15),unlit,"ordinary"', 1),
        ("Room-Ultimate-5x5", 'REGION:(0,0,5,5),unlit,"ordinary"', 1),
        ("MultiRoom-N4-Monster", "MONSTER:random,random", 6),
        ("MultiRoom-N4-LavaMonsters", "MONSTER:random,random", 2),
        ("River-Monster", "MONSTER:random,random", 5),
        ("River", "OBJECT:('`',\"boulder\"),rndcoord($boulder_area)", 5),
        ("River-Narrow", "." * 18 + "WW." + "....", 7),
        ("River-Lava", "." * 18 + "LLL" + "....", 5),
        ("Eat-Fixed", "OBJECT:('%',\"apple\"),(0, 0)", 1),
        ("Eat", "OBJECT:('%',\"apple\"),random", 1),
        ("Eat-Distr", "MONSTER:random,random", 1),
        ("MazeWalk-9x9", "MAZEWALK:(5,5),east", 1),
    ],
)
def test_a_description_holds_what_the_name_says(name, line, count):
    lines = LEVELS[f"MiniHack-{name}-v0"].describe(1).splitlines()

    assert lines.count(line) == count


@pytest.mark.parametrize(("number", "rooms"), [(2, 2), (4, 6), (6, 6), (10, 10)])
@pytest.mark.parametrize(("kind", "doors"), [("", "closed"), ("-Lava", "closed")])
def test_rooms_in_a_row_have_a_door_between_neighbours(number, rooms, kind, doors):
    lines = LEVELS[f"MiniHack-MultiRoom-N{number}{kind}-v0"].describe(1).splitlines()

    assert sum(line.startswith(f"DOOR:{doors},") for line in lines) == rooms - 1
    assert any("LLL" in line for line in lines) == (kind == "-Lava")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_doors_and_goal_stand_where_the_map_has_them(seed):
    lines = LEVELS["MiniHack-MultiRoom-N4-v0"].describe(seed).splitlines()
    rows = lines[lines.index("MAP") + 1 : lines.index("ENDMAP")]

    def cells(pattern):
        matches = filter(None, (re.match(pattern, line) for line in lines))
        return [rows[int(match[2])][int(match[1])] for match in matches]

    assert cells(r"DOOR:\w+,\((\d+), (\d+)\)") == ["+"] * "".join(rows).count("+")
    assert cells(r"STAIR:\((\d+), (\d+)\),down") == ["."]


@pytest.mark.parametrize(
    ("kind", "doors"), [("Locked", "locked"), ("Extreme", "locked"), ("OpenDoor", "open")]
)
def test_doors_are_as_the_name_says(kind, doors):
    lines = LEVELS[f"MiniHack-MultiRoom-N6-{kind}-v0"].describe(1).splitlines()

    assert sum(line.startswith(f"DOOR:{doors},") for line in lines) == 5


@pytest.mark.parametrize("name", LEVELS)
def test_only_rows_of_rooms_differ_between_seeds(name):
    describe = LEVELS[name].describe

    assert describe(1) == describe(1)
    assert (describe(1) != describe(2)) == ("MultiRoom" in name)


def test_every_level_compiles_and_starts():
    engine = LevelEngine(Buffers(), options=("pettype:none",), spawn_monsters=False)
    for name, level in LEVELS.items():
        engine.load(level.describe(1))
        engine.start(1, 2)
        assert engine.buffers.program_state[3], name
    engine.close()


@pytest.mark.parametrize(
    ("options", "limit"),
    [({}, 100), ({"max_episode_steps": 10}, 10), ({"max_episode_steps": 5000}, 100)],
)
def test_the_step_limit_is_the_levels_or_a_shorter_one(options, limit):
    env = gymnasium.make("motif_jax/MiniHack-Room-5x5-v0", **options)
    env.reset(seed=1)

    assert next(step for step in range(1, 1000) if env.step(0)[3]) == limit


@pytest.fixture
def engine():
    engine = LevelEngine(Buffers(), spawn_monsters=False)
    yield engine
    engine.close()


def test_a_description_is_compiled_once_in_a_row(engine):
    source = engine.folder / "level.des"
    engine.load(descriptions.room(5))
    source.unlink()

    engine.load(descriptions.room(5))
    assert not source.exists()

    engine.load(descriptions.room(15))
    assert source.exists()


def test_the_level_before_stays_after_one_that_does_not_compile(engine):
    engine.load(descriptions.room(5))

    line = error_line(engine.load, "MAZE: nonsense")

    assert line == 'nle\'s lev_comp level.des: level.des: line 1, pos 6: syntax error at "nonsense"'
    engine.start(1, 2)
    assert engine.buffers.program_state[3]


def test_a_silently_failing_compiler_is_refused_with_its_exit_code(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(level_engine, "HACKDIR", str(tmp_path))
    compiler = tmp_path / "lev_comp"
    compiler.write_text("#!/bin/sh\nexit 3\n")
    compiler.chmod(0o700)

    assert error_line(engine.load, "x") == "nle's lev_comp level.des: exit code 3"


def test_a_dungeon_of_another_version_is_refused(tmp_path, monkeypatch):
    (tmp_path / "dat").mkdir()
    (tmp_path / "dat" / "dungeon.def").write_text("DUNGEON\n")
    monkeypatch.setattr(level_engine, "HACKDIR", str(tmp_path))
    # The installed one is remembered.
    level_engine.data_library.cache_clear()

    line = error_line(level_engine.data_library)

    assert line == "nle's dungeon.def has another form than that of NetHack 3.6"


def folders_of_games():
    """The folders that the engines of this process have."""
    return {path for path in tempdirs.process_folder(os.getpid()).iterdir() if path.is_dir()}


def test_games_leave_no_descriptors_and_no_files():
    folders_before = folders_of_games()
    env, out = started("MiniHack-MultiRoom-N2-v0")
    (folder,) = folders_of_games() - folders_before
    # It goes with the process, or with the next one after a SIGKILL.
    assert tempdirs.hold(folder.parent) is None

    def open_files():
        targets = [
            os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
        ]
        return [target for target in targets if str(folder) in target]

    files_before = sorted(folder.iterdir())
    open_before = open_files()
    for seed in range(1, 10):
        env.reset(seed, out)
        env.step(0, out)

    assert sorted(folder.iterdir()) == files_before
    assert open_files() == open_before
    env.close()
    assert not folder.exists()
