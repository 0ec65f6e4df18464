from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.nethack.scripted_players import ERRANDS, FIELDS
from motif_jax.envs.nethack.status import DEPTH, X, Y

SPEC = registry.spec("NetHackScore-v1", fields=FIELDS)


# The colour of + | - that are doors, and of everything else here.
DOOR = 3
GREY = 7


def key(choose, rows, message=b"", colours=None):
    """The key that is chosen where the map has these rows; `colours`: (row, column) -> colour."""
    chars = np.full((24, 80), ord(" "), np.uint8)
    for y, row in enumerate(rows, start=1):
        chars[y, : len(row)] = np.frombuffer(row.encode(), np.uint8)
    tty_colors = np.full((24, 80), GREY, np.uint8)
    for (row, column), colour in (colours or {}).items():
        tty_colors[row + 1, column] = colour
    status = np.zeros(27, np.int32)
    ((y, x),) = np.argwhere(chars == ord("@")).tolist()
    status[[X, Y, DEPTH]] = x, y - 1, 1
    text = np.frombuffer(message.ljust(256, b"\0"), np.uint8)
    observation = {"tty_chars": chars, "tty_colors": tty_colors, "blstats": status, "message": text}
    return chr(TASK_KEYS[choose(observation)])


def keys_of(name, rows, steps):
    """The first keys of a player of seed 0 while the map stays as it is."""
    choose = ERRANDS[name].player(0, SPEC)
    return "".join(key(choose, rows) for _ in range(steps))


def test_a_fighter_attacks_a_monster_next_to_it():
    assert keys_of("fighter", ["|.@h.+|"], 1) == "l"


def test_a_peaceful_monster_is_left_alone_after_the_question():
    choose = ERRANDS["fighter"].player(0, SPEC)
    row = ["|.@h.+|"]
    assert key(choose, row) == "l"

    assert key(choose, row, message=b"Really attack the dwarf? [yn] (n)") == "s"
    assert key(choose, row) != "l"


@pytest.mark.parametrize("monster", ["e", "F"])
def test_monsters_that_are_dangerous_to_touch_are_left_alone(monster):
    assert keys_of("fighter", ["-------", f"|..@{monster}.|", "-------"], 1) != "l"


def test_a_pet_is_walked_through():
    assert keys_of("diver", ["-------", "|.@d.>|", "-------"], 1) == "l"


def test_a_fighter_walks_to_a_monster():
    assert keys_of("fighter", ["|h...@..|"], 1) == "h"


def test_a_diver_walks_past_gold_to_the_stairs():
    assert keys_of("diver", ["|$..@..>|"], 1) == "l"


def test_a_collector_walks_to_gold_before_the_stairs():
    assert keys_of("collector", ["|>.@...$|"], 1) == "l"


def test_nobody_walks_diagonally_through_a_door():
    rows = ["------", "|.@..|", "|-+--|", "|..>.|", "------"]
    colours = {(2, 2): DOOR}

    assert key(ERRANDS["diver"].player(0, SPEC), rows, colours=colours) == "j"


def test_a_diver_that_reached_the_stairs_goes_down():
    choose = ERRANDS["diver"].player(0, SPEC)
    assert key(choose, ["|.@>.|"]) == "l"

    # The hero hides the stairs that it stands on.
    assert key(choose, ["|..@.|"]) == ">"


def test_a_place_missed_three_times_is_given_up():
    keys = keys_of("diver", ["--------", "|..@>..|", "--------"], 4)

    assert keys[:3] == "lll"
    assert keys[3] != "l"


def test_an_explored_level_is_searched():
    closed = ["-----", "|.@.|", "-----"]

    assert keys_of("diver", closed, 6) == "ssssss"


def test_actions_depend_only_on_the_seed_and_the_screen():
    env = registry.make("NetHackScore-v1", fields=FIELDS, max_episode_steps=250)
    try:
        episodes = {
            (name, seed, attempt): [
                step.action for step in play(env, seed, errand.player(seed, env.spec))
            ]
            for name, errand in ERRANDS.items()
            for seed in (8, 11)
            for attempt in (0, 1)
        }
    finally:
        env.close()

    for name in ERRANDS:
        for seed in (8, 11):
            assert episodes[name, seed, 0] == episodes[name, seed, 1]
        assert episodes[name, 8, 0] != episodes[name, 11, 0]


def test_a_diver_gets_deeper_than_the_first_level():
    env = registry.make("NetHackScore-v1", fields=FIELDS, max_episode_steps=250)
    try:
        depths = []
        for seed in (8, 11):
            for step in play(env, seed, ERRANDS["diver"].player(seed, env.spec)):
                depths.append(int(step.observation["blstats"][DEPTH]))
    finally:
        env.close()

    assert max(depths) > 1
