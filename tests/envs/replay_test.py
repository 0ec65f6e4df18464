"""Episodes are played again from their seed and actions, byte for byte."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from motif_jax.envs.nethack.game import END_DEATH
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.replay import Recorder, Recording, replay
from motif_jax.envs.spec import RUNNING, TRUNCATED
from motif_jax.support.errors import UserError


@pytest.fixture(scope="module")
def played():
    """A recording and copies of every screen of the episode."""
    recorder = Recorder("NetHackStaircase-v1", max_episode_steps=200, fields=("tty_chars", "tty_colors"))
    choose = HABITS["uniform"].player(1, recorder.environment.spec)
    screens, ends = [], []
    for moment in recorder.record(11, choose):
        screens.append({name: array.copy() for name, array in moment.observation.items()})
        ends.append(moment.end)
    recorder.close()
    assert ends[-1] == TRUNCATED
    assert set(ends[:-1]) == {RUNNING}
    return recorder.recording, screens


def test_replay_shows_the_same_screens(played, tmp_path):
    recording, screens = played
    recording.save(tmp_path / "episode.json")
    loaded = Recording.load(tmp_path / "episode.json")
    assert len(loaded.actions) == 200
    assert loaded.info == recording.info
    moments = 0
    for moment, screen in zip(replay(loaded), screens, strict=True):
        for name, array in screen.items():
            np.testing.assert_array_equal(moment.observation[name], array)
        moments += 1
    assert moments == 201


def test_the_clock_of_the_wall_has_no_part_in_a_game(repository):
    """Moon, Friday 13th, night and midnight come from the seed: in every time zone the engine says the same."""
    code = """
import ctypes, os, time
from motif_jax.envs.nethack.engine import NetHackEngine
engine = NetHackEngine(shared_code=False)
engine.start(12, 7)
library = ctypes.CDLL(engine._game.dlpath)
said = set()
for hours in range(-12, 12):
    os.environ["TZ"] = f"ABC{hours:+d}"
    time.tzset()
    names = ("night", "midnight", "phase_of_the_moon", "friday_13th")
    said.add(tuple(getattr(library, name)() for name in names))
print(len(said), flush=True)
os._exit(0)  # two handles of one library: none is left to be closed in order
"""
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=repository, check=True
    )
    assert child.stdout.strip() == "1"


def test_a_death_shows_nothing_of_earlier_deaths():
    """The engine shows a list of the best scores, and keeps it in a file from one game to the next."""
    recorder = Recorder("NetHackScore-v1", max_episode_steps=300)
    recordings = []
    for seed in (94, 44, 12, 44, 94):
        drawn = tuple(HABITS.values())[seed % len(HABITS)].actions(seed)
        list(recorder.record(seed, lambda _, drawn=drawn: next(drawn)))
        recordings.append(recorder.recording)
    recorder.close()
    deaths = [recording for recording in recordings if recording.info["end"] == END_DEATH]
    assert [death.seed for death in deaths] == [94, 44, 44, 94]
    for recording in recordings:
        list(replay(recording))


def test_a_changed_action_is_noticed(played):
    recording = played[0]
    actions = recording.actions.copy()
    actions[5] = (actions[5] + 1) % 23
    changed = dataclasses.replace(recording, actions=actions)
    with pytest.raises(UserError, match="not the episode that was recorded"):
        list(replay(changed))
    assert list(replay(changed, verify=False))


def test_switches_are_recorded():
    recorder = Recorder(
        "NetHackScore-v1", max_episode_steps=5, compat={"crop_row_offset": True, "sober_mask": False}
    )
    list(recorder.record(3, lambda _: 1))
    assert recorder.recording.options == {"max_episode_steps": 5, "compat": {"crop_row_offset": True}}
    list(replay(recorder.recording))
    recorder.close()
    with pytest.raises(UserError, match="seed_noop"):
        Recorder("NetHackScore-v1", compat={"seed_noop": True})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": [1, 999]}, "is damaged .*action 999 is not one of"),
        ({"options": {"no_such": 1}}, "cannot be played.*no_such"),
        ("{", "is damaged .*no JSON"),
        ("{}", "is not a recording of an episode"),
    ],
)
def test_a_damaged_recording_is_named_with_what_to_do(tmp_path, change, said):
    recorder = Recorder("Recall-v0", delay=2)
    list(recorder.record(3, lambda _: 1))
    path = tmp_path / "game.json"
    recorder.recording.save(path)
    text = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
    path.write_text(text)
    with pytest.raises(UserError, match=f"game.json {said}") as error:
        Recording.load(path)
    if "damaged" in said:
        assert ": leave it out, or have the episode recorded again" in str(error.value)
