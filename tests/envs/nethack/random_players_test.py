from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import HABITS, Habit, ReplayedActions, has_habits
from tests.recorded_outputs import assert_matches_packed_recording, shown_array

SPECS = {23: registry.spec("NetHackScore-v1"), 28: registry.spec("NetHackScoreExtendedActions-v1")}


def taken(habit, seed, count, actions=23):
    choose = habit.player(seed, SPECS[actions])
    return [choose({}) for _ in range(count)]


def test_what_was_taken_is_taken_again_and_habits_are_of_the_tasks_with_these_actions(record):
    said = {f"{name} {of}": shown_array(taken(HABITS[name], 5, 5000, of)) for name in HABITS for of in SPECS}
    assert_matches_packed_recording("habits", said, record)
    choose = ReplayedActions(np.array([3, 0, 22])).player(0, SPECS[23])
    assert [choose({}) for _ in range(3)] == [3, 0, 22]
    with pytest.raises(StopIteration):
        choose({})
    names = ("NetHackScore-v1", "NetHackOracleExtendedActions-v1", "MiniHack-Room-5x5-v0", "Recall-v0")
    assert [has_habits(registry.spec(name)) for name in names] == [True, True, False, False]
    from_default = Habit().actions(4)
    assert [next(from_default) for _ in range(9)] == taken(HABITS["uniform"], 4, 9)
