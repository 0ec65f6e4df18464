"""Random players with habits: repeatable, and true to their weights."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.nethack.random_players import ACTION_GROUPS, HABITS, NUM_ACTIONS, GivenActions, Habit

SPEC = registry.spec("NetHackScore-v1")


def taken(habit, seed, count):
    choose = habit.player(seed, SPEC)
    return [choose({}) for _ in range(count)]


def test_groups_name_the_keys_of_the_tasks():
    assert registry.spec("NetHackScore-v1").num_actions == NUM_ACTIONS
    groups = [group for group, count in ACTION_GROUPS for _ in range(count)]
    by_key = dict(zip(TASK_KEYS, groups, strict=True))
    expected = {13: "more", ord("h"): "walk", ord("Y"): "run", ord("<"): "up", ord(">"): "down", 4: "kick"}
    expected |= {ord("."): "wait", ord("e"): "eat", ord("s"): "search"}
    assert {key: by_key[key] for key in expected} == expected


@pytest.mark.parametrize("name", sorted(HABITS))
def test_actions_depend_on_the_seed_alone(name):
    habit = HABITS[name]
    first = taken(habit, 5, 3000)
    assert first == taken(habit, 5, 3000)
    assert first != taken(habit, 6, 3000)
    assert set(first) <= set(range(NUM_ACTIONS))


@pytest.mark.parametrize("name", sorted(HABITS))
def test_frequencies_are_the_weights(name):
    """Repeats leave the long-run frequencies as they are."""
    actions = [taken(HABITS[name], seed, 5000) for seed in range(12)]
    counts = np.bincount(np.concatenate(actions), minlength=NUM_ACTIONS)
    expected = HABITS[name].probabilities()
    assert expected.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(counts / counts.sum(), expected, atol=0.012)


def test_repeat():
    actions = np.array(taken(Habit(repeat=0.8), 1, 20_000))
    assert np.mean(actions[1:] == actions[:-1]) == pytest.approx(0.8 + 0.2 / NUM_ACTIONS, abs=0.02)


def test_other_action_sets_are_refused():
    with pytest.raises(ValueError, match="23 actions"):
        HABITS["walker"].player(0, registry.spec("Recall-v0"))


def test_given_actions():
    assert taken(GivenActions(np.array([3, 1, 2])), 0, 3) == [3, 1, 2]
    with pytest.raises(StopIteration):
        taken(GivenActions(np.array([3, 1, 2])), 0, 4)
