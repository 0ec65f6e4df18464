from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.nethack.random_players import HABITS, Habit, has_habits

SPECS = {23: registry.spec("NetHackScore-v1"), 28: registry.spec("NetHackScoreExtendedActions-v1")}


def first_actions(habit, seed, count, num_actions=23):
    choose = habit.player(seed, SPECS[num_actions])
    return [choose({}) for _ in range(count)]


@pytest.mark.parametrize("num_actions", SPECS)
@pytest.mark.parametrize("name", HABITS)
def test_a_habit_takes_actions_as_often_as_its_weights_say(name, num_actions):
    count = 20_000
    actions = first_actions(HABITS[name], 5, count, num_actions)

    shares = np.bincount(actions, minlength=num_actions) / count
    probabilities = HABITS[name].probabilities(num_actions)
    # A repetition makes neighbours alike, which widens the spread of a share.
    repeat = HABITS[name].repeat
    deviation = np.sqrt(probabilities * (1 - probabilities) / count * (1 + repeat) / (1 - repeat))
    assert probabilities.sum() == pytest.approx(1.0)
    assert (np.abs(shares - probabilities) <= 4.5 * deviation).all()


@pytest.mark.parametrize(("name", "repeat"), [("uniform", 0.0), ("runner", 0.3), ("walker", 0.5)])
def test_a_habit_repeats_the_last_action_at_its_rate(name, repeat):
    actions = np.array(first_actions(HABITS[name], 5, 20_000))

    share = (actions[1:] == actions[:-1]).mean()

    by_chance = (HABITS[name].probabilities(23) ** 2).sum()
    assert share == pytest.approx(repeat + (1 - repeat) * by_chance, abs=0.015)


def test_weights_are_of_each_action_of_a_group():
    walker = HABITS["walker"].probabilities(28)

    # "more", eight steps, eight runs, up, down, wait, kick, eat, search, cast, drink, pray, pick
    # up, pay.
    weights = [1, *[6] * 8, *[1] * 8, 0.1, 1, 1, 1, 0.3, 1, 0.3, 0.3, 0.02, 1, 0.1]
    np.testing.assert_allclose(walker, np.array(weights) / sum(weights))


def test_a_descender_never_goes_up():
    up = 17
    assert HABITS["descender"].probabilities(23)[up] == 0


def test_actions_depend_only_on_the_seed():
    # More than one block of draws.
    actions = first_actions(HABITS["runner"], 5, 3000)

    assert first_actions(HABITS["runner"], 5, 3000) == actions
    assert first_actions(HABITS["runner"], 6, 3000) != actions


def test_a_seed_draws_the_actions_of_earlier_versions():
    # Trajectories are collected again by their seeds.
    actions = first_actions(HABITS["runner"], 5, 16)

    assert actions == [9, 15, 15, 15, 7, 14, 2, 11, 16, 16, 20, 18, 4, 4, 4, 6]


def test_a_habit_without_weights_is_the_uniform_one():
    iterator = Habit().actions(4)

    assert [next(iterator) for _ in range(9)] == first_actions(HABITS["uniform"], 4, 9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NetHackScore-v1", True),
        ("NetHackOracleExtendedActions-v1", True),
        ("MiniHack-Room-5x5-v0", False),
        ("Recall-v0", False),
    ],
)
def test_habits_are_of_tasks_with_the_actions_of_nethack(name, expected):
    assert has_habits(registry.spec(name)) is expected
