"""The tasks with 28 actions: the published rules on given frames, and what is different when the switch is off."""

from __future__ import annotations

import copy

import pytest

from motif_jax.envs.spec import RUNNING
from tests.conftest import load_golden
from tests.envs.nethack.fake_engine import check_published, play
from tests.recorded_outputs import assert_matches_packed_recording

GOLDEN = load_golden("oni/oni_task_rules.json")
SCORE, STAIRCASE = "NetHackScoreExtendedActions-v1", "NetHackStaircaseExtendedActions-v1"
CAST, DRINK, NORTH, YES, DOWN = 23, 24, 1, 8, 18
SKILL = "You feel more confident in your martial arts skills."
IMPROVED = [{"msg": "Pick a skill"}, {"msg": "You are now more skilled.", "time": 2}]
STAIRS = {"msg": f"You descend the stairs.  {SKILL}", "time": 2, "dlevel": 2}
PUBLISHED = {"oni_extended_steps": True}


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['env']}-{case['scenario']}")
def test_published_rules(case):
    waiting: list[bool] = []
    steps = [(step["action_index"], step["frames"]) for step in case["steps"]]
    note = {"compat": PUBLISHED, "after": lambda game: waiting.append(game._skill_waits)}
    results = play(case["env"], case["prev"], steps, **note)
    if any("error" in result for result in case["result"]):
        # Bytes that are no UTF-8 end the published game; here it continues.
        ((_, end, keys, message, _),) = results
        assert (end, keys, message) == (RUNNING, [107], "Café.")
        return
    assert waiting == [result["enhance_pending"] for result in case["result"]]
    case = copy.deepcopy(case)
    for result in case["result"]:
        result["kills"] = result["kill_counts"]
    # The engine's clock stands at 0 once a game is over, which these frames leave out.
    for frame in (frame for step in case["steps"] for frame in step["frames"]):
        frame["time"] *= not frame["done"]
    check_published(case, ("dlvl", "gold", "xlvl", "scout", "kills"))


CHOOSE = {"msg": "Choose which spell to cast"}
WAITS = {"msg": f"{SKILL}  Shall I remove your armour?", "yn": 1}
TOLD = {"msg": SKILL, "time": 2}
DOWNSTAIRS = {"msg": "You descend the stairs.", "time": 2, "dlevel": 2}
KILL = {"msg": "You kill the newt!"}
OTHER = {"msg": "Kaboom!  YOU KILL the rat!  You kill the newt!"}
DRINKS = {"msg": "What do you want to drink? [fg or ?*]", "yn": 1}
KILLS = [
    (NORTH, [{**KILL, "time": 2, "points": 1}]),
    (NORTH, [{**KILL, "time": 2, "points": 1}]),  # a key that took no time: the message stays
    (NORTH, [{**KILL, "time": 2, "points": 2}]),  # another newt, within the same turn
    (NORTH, [{**OTHER, "time": 3, "points": 9}]),
    (NORTH, [{"time": 4, "points": 9}]),
]
SCENARIOS = {
    "a skill from a cast": (SCORE, [(CAST, [CHOOSE, TOLD, *IMPROVED])]),
    "and a prompt": (SCORE, [(CAST, [CHOOSE, {**TOLD, "more": 1}, {"time": 2}, *IMPROVED])]),
    "before its letter": (
        SCORE,
        [(CAST, [TOLD, {"msg": "You cast it.", "more": 1}, {"time": 2}, *IMPROVED])],
    ),
    "and a prompt behind": (
        SCORE,
        [(NORTH, [TOLD, IMPROVED[0], {**IMPROVED[1], "more": 1}, {"msg": "a", "time": 2}])],
    ),
    "a cast that ends it": (SCORE, [(CAST, [TOLD, {"time": 0, "done": 1}])]),
    # An escaped question leaves a prompt for the next step.
    "a question": (SCORE, [(NORTH, [WAITS, {"msg": "You stop.", "more": 1}, {"time": 2}, *IMPROVED])]),
    "on the stairs": (
        STAIRCASE,
        [(DOWN, [{**STAIRS, "msg": said} for said in (STAIRS["msg"], "Pick a skill", "Done.")])],
    ),
    "under their kept sentence": (
        STAIRCASE,
        [(DOWN, [{**DOWNSTAIRS, "more": 1}, *({**DOWNSTAIRS, "msg": said} for said in (SKILL, "Pick", ""))])],
    ),
    "it waits for an answer": (
        SCORE,
        [
            (NORTH, [{"msg": f"{SKILL}  Really attack the gnome?", "yn": 1}]),
            (YES, [{"msg": "You hit it.", "time": 2}, *IMPROVED]),
        ],
    ),
    "yes to a drink": (
        SCORE,
        [(DRINK, [DRINKS]), (YES, [{"time": 2}]), (DRINK, [DRINKS]), (NORTH, [{"time": 3}])],
    ),
    "kills": (SCORE, KILLS),
    "kills with 23 actions": ("NetHackScore-v1", KILLS),
}


def test_games_under_both_rules_are_the_recorded_ones(record):
    """A kill is counted once, a skill improved at the end of its step; under the switch as published."""
    played = {}
    for name, (task, steps) in SCENARIOS.items():
        for compat in (None, PUBLISHED):
            played[f"{name} {compat}"] = "\n".join(map(str, play(task, {}, steps, compat=compat)))
    assert_matches_packed_recording("extended_games", played, record)
    assert [line[-5] for line in played["kills None"].splitlines()] == list("11233")
