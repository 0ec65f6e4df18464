"""Scripted players do their errands: what they walk to, and what real games then hold."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.episode import play
from motif_jax.envs.nethack.actions import TASK_KEYS
from motif_jax.envs.nethack.random_players import HABITS
from motif_jax.envs.nethack.scripted_players import ERRANDS, FIELDS, Errand
from motif_jax.envs.nethack.status import DEPTH, X, Y

ROOM = (
    "  --------      ",
    "  |......|      ",
    "  |..@...+  h   ",
    "  |....$.|      ",
    "  |.>....|      ",
    "  --------      ",
)


def observation(rows=ROOM, colours=None, message=b"", at=None):
    chars = np.full((24, 80), ord(" "), np.uint8)
    for y, row in enumerate(rows, start=1):
        chars[y, : len(row)] = np.frombuffer(row.encode(), np.uint8)
    tints = np.full((24, 80), 7, np.uint8)
    for place, colour in (colours or {}).items():
        tints[place] = colour
    status = np.zeros(27, np.int32)
    y, x = at or next((y - 1, x) for y, x in np.argwhere(chars == ord("@")).tolist())
    status[[X, Y, DEPTH]] = x, y, 1
    text = np.frombuffer(message.ljust(256, b"\0"), np.uint8)
    return {"tty_chars": chars, "tty_colors": tints, "blstats": status, "message": text}


def spec():
    return registry.spec("NetHackScore-v1", fields=FIELDS)


def key(errand, **seen):
    return chr(TASK_KEYS[errand.player(0, spec()).__call__(observation(**seen))])


DOOR = {(3, 9): 3}


def test_each_walks_to_what_it_wants():
    assert key(Errand(wanted=b"$"), colours=DOOR) in "ln", "towards the gold, south-east"
    assert key(Errand(wanted=b">"), colours=DOOR) in "bj"
    assert key(Errand(), colours=DOOR) == "l", "to the door, which leads on, straight"
    beside = ("  |..@j..|  ",)
    assert key(Errand(wanted=b"$"), rows=beside) == "l", "strikes at what stands beside it"
    past_a_pet = ("  |..@d.+..  ",)
    assert key(Errand(), rows=past_a_pet, colours={(1, 6): 7, (1, 8): 3}) == "l", (
        "swaps places on the way to the door"
    )
    assert key(ERRANDS["fighter"], rows=("|@....j.|",)) == "l"


def test_it_goes_down_where_it_stands_on_stairs_and_leaves_the_peaceful_alone():
    choose = Errand(wanted=b">").player(0, spec())
    rows = ("|.@>.|",)
    assert chr(TASK_KEYS[choose(observation(rows))]) == "l"
    assert chr(TASK_KEYS[choose(observation(("|..@.|",)))]) == ">"
    hunts = ERRANDS["fighter"].player(0, spec())
    beside = ("|.@h.+|",)
    assert chr(TASK_KEYS[hunts(observation(beside))]) == "l"
    assert chr(TASK_KEYS[hunts(observation(beside, message=b"Really attack the dwarf? [yn] (n)"))]) == "s"
    assert chr(TASK_KEYS[hunts(observation(beside))]) != "l"


def test_other_environments_are_refused():
    with pytest.raises(ValueError, match="read tty_chars, tty_colors, which this environment does not show"):
        ERRANDS["diver"].player(0, registry.spec("NetHackScore-v1"))


def totals(player, seeds=range(4), steps=400):
    env = registry.make("NetHackScore-v1", fields=FIELDS, max_episode_steps=steps)
    sums = np.zeros(3)
    for seed in seeds:
        for _ in play(env, seed, player.player(seed, env.spec)):
            pass
        info = env.episode_info()
        sums += [info["kills"], info["gold"], info["dlvl"]]
    env.close()
    return sums


@pytest.mark.slow
def test_real_games_hold_what_random_ones_lack():
    fighter, collector, diver = (totals(ERRANDS[name]) for name in ("fighter", "collector", "diver"))
    random = totals(HABITS["runner"])
    assert fighter[0] > random[0]
    assert collector[1] > random[1]
    assert diver[2] > random[2]
    assert np.array_equal(totals(ERRANDS["diver"]), diver), "the same seeds, the same games"
