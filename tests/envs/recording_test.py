from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack.game import END_DEATH, END_LIMIT
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.recall import Recall
from motif_jax.envs.recording import Recording, record, record_actions
from tests.envs.playing import error_line


def test_the_wall_clock_does_not_change_a_game(repository):
    """Moon, Friday 13th, night and midnight come from the seed: in every time zone the engine says
    the same.
    """
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
    """The engine shows a list of the best scores, and keeps it in a file from one game to the
    next.
    """
    task = ("NetHackScore-v1", {"max_episode_steps": 300})
    ends = []
    with contextlib.closing(registry.make(task[0], **task[1])) as environment:
        for seed in (94, 44, 12, 44, 94):
            actions = itertools.islice(HABITS[tuple(HABITS)[seed % len(HABITS)]].actions(seed), 300)
            record(environment, *task, seed, np.fromiter(actions, int)).save(tmp_path / "game.json")
            known = Recording.load(tmp_path / "game.json")
            again = record_actions(*task, seed, known.actions)
            assert (again.digest, again.info, again.options) == (
                known.digest,
                known.info,
                known.options,
            )
            ends.append(known.info["end"])
    assert ends == [END_DEATH, END_DEATH, END_LIMIT, END_DEATH, END_DEATH]
    known.actions[5] = (known.actions[5] + 1) % 23
    assert record_actions(*task, seed, known.actions).digest != known.digest


def test_switches_are_recorded():
    switches = {"max_episode_steps": 5, "compat": {"crop_row_offset": True, "sober_mask": False}}
    recording = record_actions("NetHackScore-v1", switches, 3, np.ones(9, int))
    assert recording.options == {"max_episode_steps": 5, "compat": {"crop_row_offset": True}}
    assert recording.actions.tolist() == [1] * 5
    unknown = error_line(
        record_actions, "NetHackScore-v1", {"compat": {"seed_noop": True}}, 3, np.ones(1, int)
    )
    assert "seed_noop" in unknown


@pytest.fixture
def saved_game(tmp_path):
    path = tmp_path / "game.json"
    record_actions("Recall-v0", {"delay": 2}, 3, np.ones(4, int)).save(path)
    return path


def test_a_recording_is_json_with_the_facts_of_its_episode(saved_game):
    content = json.loads(saved_game.read_text())

    assert content.pop("engine")
    assert len(bytes.fromhex(content.pop("digest"))) == 16
    assert content == {
        "actions": [1, 1, 1, 1],
        "format": "motif_jax.recording.1",
        "info": {"length": 4.0, "return": 1.0, "success": 1.0},
        "options": {"delay": 2},
        "seed": 3,
        "task": "Recall-v0",
    }


class NumpyNumbers(Recall):
    """A task whose numbers of an episode are numpy's, as those of users often are."""

    def episode_info(self):
        return {"return": np.float32(0.5), "solved": np.bool_(True)}


def test_numbers_of_an_episode_may_be_numpys(tmp_path):
    environment = NumpyNumbers("Recall-v0")

    recording = record(environment, "Recall-v0", {}, 1, np.array([0, 1]))

    recording.save(tmp_path / "game.json")
    assert Recording.load(tmp_path / "game.json").info == {"return": 0.5, "solved": 1.0}
