from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.nethack.game import END_DEATH, END_LIMIT
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.replay import Recording, record
from motif_jax.rl.actors.rerecording import record_actions
from tests.envs.playing import told
from tests.recorded_outputs import assert_matches_packed_recording


def test_the_clock_of_the_wall_has_no_part_in_a_game(repository):
    """Moon, Friday 13th, night and midnight come from the seed: in every time zone the engine says the same."""
    code = """
import ctypes, os, time
from motif_jax.envs.nethack.engine import NetHackEngine
engine = NetHackEngine(shared_code=False)
engine.start(12, 7)
library = ctypes.CDLL(engine._game.dlpath)
said, names = set(), ("night", "midnight", "phase_of_the_moon", "friday_13th")
for hours in range(-12, 12):
    os.environ["TZ"] = f"ABC{hours:+d}"
    time.tzset()
    said.add(tuple(getattr(library, name)() for name in names))
print(len(said), flush=True)
os._exit(0)  # two handles of one library: none is left to be closed in order
"""
    line = [sys.executable, "-c", code]
    child = subprocess.run(line, capture_output=True, text=True, cwd=repository, check=True)
    assert child.stdout.strip() == "1"


def test_a_death_shows_nothing_of_earlier_deaths(tmp_path):
    """The engine shows a list of the best scores, and keeps it in a file from one game to the next."""
    task, ends = ("NetHackScore-v1", {"max_episode_steps": 300}), []
    with contextlib.closing(registry.make(task[0], **task[1])) as environment:
        for seed in (94, 44, 12, 44, 94):
            actions = itertools.islice(HABITS[tuple(HABITS)[seed % len(HABITS)]].actions(seed), 300)
            record(environment, *task, seed, np.fromiter(actions, int)).save(tmp_path / "game.json")
            known = Recording.load(tmp_path / "game.json")
            again = record_actions(*task, seed, known.actions)
            assert (again.digest, again.info, again.options) == (known.digest, known.info, known.options)
            ends.append(known.info["end"])
    assert ends == [END_DEATH, END_DEATH, END_LIMIT, END_DEATH, END_DEATH]
    known.actions[5] = (known.actions[5] + 1) % 23
    assert record_actions(*task, seed, known.actions).digest != known.digest


def test_switches_are_recorded():
    switches = {"max_episode_steps": 5, "compat": {"crop_row_offset": True, "sober_mask": False}}
    recording = record_actions("NetHackScore-v1", switches, 3, np.ones(9, int))
    assert recording.options == {"max_episode_steps": 5, "compat": {"crop_row_offset": True}}
    assert recording.actions.tolist() == [1] * 5
    unknown = told(record_actions, "NetHackScore-v1", {"compat": {"seed_noop": True}}, 3, np.ones(1, int))
    assert "seed_noop" in unknown


DAMAGES = (
    {"actions": [1, 999]},
    {"options": {"no_such": 1}},
    {"options": {"max_episode_steps": 0}},
    {"options": []},
    {"seed": -1},
    {"seed": 1.0},
    {"options": {"max_episode_steps": True}},
    {"info": 3},
    {"format": "x"},
    {"more": 1},
    "{",
    "{}",
)


def test_a_damaged_recording_is_named_with_what_to_do(tmp_path, record):
    path, said = tmp_path / "game.json", {}
    record_actions("Recall-v0", {"delay": 2}, 3, np.ones(4, int)).save(path)
    good = json.loads(path.read_text())
    for change in DAMAGES:
        path.write_text(change if isinstance(change, str) else json.dumps(good | change))
        said[str(change)] = told(Recording.load, path).replace(str(tmp_path), "")
    assert_matches_packed_recording(
        "recordings_refused", said | {"good": json.dumps({**good, "engine": ""})}, record
    )
