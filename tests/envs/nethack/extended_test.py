"""The tasks with 28 actions: the published rules on given frames, and what is different when the
switch is off.
"""

from __future__ import annotations

import copy

import pytest

from motif_jax.envs.nethack.actions import ENHANCE, ESCAPE, FIRST_CHOICE, QUIT, SPACE
from motif_jax.envs.spec import RUNNING, TERMINATED
from tests.conftest import load_golden
from tests.envs.nethack.fake_engine import check_published, play

GOLDEN = load_golden("oni/oni_task_rules.json")
SCORE = "NetHackScoreExtendedActions-v1"
STAIRCASE = "NetHackStaircaseExtendedActions-v1"
CAST = 23
DRINK = 24
NORTH = 1
YES = 8
DOWN = 18
SKILL = "You feel more confident in your martial arts skills."
IMPROVED = [{"msg": "Pick a skill"}, {"msg": "You are now more skilled.", "time": 2}]
STAIRS = {"msg": f"You descend the stairs.  {SKILL}", "time": 2, "dlevel": 2}
PUBLISHED = {"oni_extended_steps": True}
RULES = [pytest.param(None, id="default"), pytest.param(PUBLISHED, id="published")]


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"{case['env']}-{case['scenario']}"
)
def test_published_rules(case):
    waiting: list[bool] = []
    steps = [(step["action_index"], step["frames"]) for step in case["steps"]]
    note = {"compat": PUBLISHED, "after": lambda game: waiting.append(game.skill_waits)}
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
MORE_CONFIDENT = {"msg": SKILL, "time": 2}
# The keys that improve a skill: enhance, and the first choice.
IMPROVES = [ENHANCE, FIRST_CHOICE]
CASTS = [ord("Z"), FIRST_CHOICE]
K = ord("k")


def last_step(task, steps, compat):
    """Keys, message and info of the last step of a game."""
    _, _, keys, message, info = play(task, {}, steps, compat=compat)[-1]
    return keys, message, info


@pytest.mark.parametrize(
    ("compat", "keys", "message"),
    [(None, [*CASTS, *IMPROVES], "You are now more skilled."), (PUBLISHED, CASTS, SKILL)],
)
def test_a_cast_improves_a_skill_but_not_as_published(compat, keys, message):
    steps = [(CAST, [CHOOSE, MORE_CONFIDENT, *IMPROVED])]

    assert last_step(SCORE, steps, compat)[:2] == (keys, message)


@pytest.mark.parametrize(
    ("compat", "keys", "message"),
    [
        (None, [*CASTS, SPACE, *IMPROVES], "You are now more skilled."),
        (PUBLISHED, [*CASTS, SPACE], ""),
    ],
)
def test_a_skill_over_a_prompt_is_missed_as_published(compat, keys, message):
    steps = [(CAST, [CHOOSE, {**MORE_CONFIDENT, "more": 1}, {"time": 2}, *IMPROVED])]

    assert last_step(SCORE, steps, compat)[:2] == (keys, message)


@pytest.mark.parametrize("compat", RULES)
def test_a_skill_shown_before_a_spells_letter_is_improved(compat):
    steps = [(CAST, [MORE_CONFIDENT, {"msg": "You cast it.", "more": 1}, {"time": 2}, *IMPROVED])]

    keys, message, _ = last_step(SCORE, steps, compat)

    assert keys == [*CASTS, SPACE, *IMPROVES]
    assert message == "You are now more skilled."


@pytest.mark.parametrize("compat", RULES)
def test_a_prompt_after_an_improvement_is_dismissed(compat):
    pick, improved = IMPROVED
    steps = [(NORTH, [MORE_CONFIDENT, pick, {**improved, "more": 1}, {"msg": "a", "time": 2}])]

    keys, message, _ = last_step(SCORE, steps, compat)

    assert keys == [K, *IMPROVES, SPACE]
    assert message == "a"


@pytest.mark.parametrize("compat", RULES)
def test_a_cast_that_ends_the_game_improves_nothing(compat):
    steps = [(CAST, [MORE_CONFIDENT, {"time": 0, "done": 1}])]

    keys, _, info = last_step(SCORE, steps, compat)

    assert keys == CASTS
    assert info["end"] == TERMINATED


@pytest.mark.parametrize(
    ("compat", "keys", "message", "reward"),
    [
        # Published: the prompt waits for the next step, whose clock has not moved.
        (PUBLISHED, [K, ESCAPE], "You stop.", -0.01),
        (None, [K, ESCAPE, SPACE], "", 0.0),
    ],
)
def test_a_prompt_after_escape_is_dismissed_but_not_as_published(compat, keys, message, reward):
    question = {"msg": f"{SKILL}  Shall I remove your armour?", "yn": 1}
    steps = [(NORTH, [question, {"msg": "You stop.", "more": 1}, {"time": 2}, *IMPROVED])]

    (result,) = play(SCORE, {}, steps, compat=compat)

    assert result[0] == reward
    assert result[2:4] == (keys, message)


@pytest.mark.parametrize(
    ("compat", "keys", "success"),
    [(None, [ord(">"), *IMPROVES, *QUIT], 1.0), (PUBLISHED, [ord(">"), *IMPROVES], 0.0)],
)
def test_an_improvement_on_the_stairs_hides_their_sentence_as_published(compat, keys, success):
    frames = [{**STAIRS, "msg": message} for message in (STAIRS["msg"], "Pick a skill", "Done.")]

    (result,) = play(STAIRCASE, {}, [(DOWN, frames)], compat=compat)

    assert result[0] == 50.0 * success
    assert result[2] == keys
    assert result[4]["success"] == success


@pytest.mark.parametrize(
    ("compat", "keys"),
    [
        (None, [ord(">"), SPACE, *IMPROVES, *QUIT]),
        (PUBLISHED, [ord(">"), SPACE, *QUIT]),
    ],
)
def test_the_stairs_sentence_hides_a_skill_as_published(compat, keys):
    stairs = {"msg": "You descend the stairs.", "time": 2, "dlevel": 2}
    after = [{**stairs, "msg": message} for message in (SKILL, "Pick", "")]

    (result,) = play(STAIRCASE, {}, [(DOWN, [{**stairs, "more": 1}, *after])], compat=compat)

    assert result[2:4] == (keys, "You descend the stairs.")
    assert result[4]["success"] == 1.0


@pytest.mark.parametrize("compat", RULES)
def test_a_skill_is_improved_after_a_questions_answer(compat):
    steps = [
        (NORTH, [{"msg": f"{SKILL}  Really attack the gnome?", "yn": 1}]),
        (YES, [{"msg": "You hit it.", "time": 2}, *IMPROVED]),
    ]

    question, answer = play(SCORE, {}, steps, compat=compat)

    assert question[2] == [K]
    assert answer[2:4] == ([ord("y"), *IMPROVES], "You are now more skilled.")


@pytest.mark.parametrize("compat", RULES)
def test_yes_to_a_drink_selects_the_first_choice(compat):
    question = {"msg": "What do you want to drink? [fg or ?*]", "yn": 1}

    drink, answer = play(SCORE, {}, [(DRINK, [question]), (YES, [{"time": 2}])], compat=compat)

    assert drink[2:4] == ([ord("q")], question["msg"])
    assert answer[2] == [ord("f")]


@pytest.mark.parametrize("compat", RULES)
def test_another_answer_to_a_drink_is_no(compat):
    question = {"msg": "What do you want to drink? [fg or ?*]", "yn": 1}

    _, answer = play(SCORE, {}, [(DRINK, [question]), (NORTH, [{"time": 3}])], compat=compat)

    assert answer[2] == [SPACE]


KILL = {"msg": "You kill the newt!"}
KILLS = [
    (NORTH, [{**KILL, "time": 2, "points": 1}]),
    (NORTH, [{**KILL, "time": 2, "points": 1}]),  # a key that took no time: the message stays
    (NORTH, [{**KILL, "time": 2, "points": 2}]),  # another newt, within the same turn
    (NORTH, [{"msg": "Kaboom!  YOU KILL the rat!  You kill the newt!", "time": 3, "points": 9}]),
    (NORTH, [{"time": 4, "points": 9}]),
]


@pytest.mark.parametrize(
    ("task", "compat", "kills"),
    [
        (SCORE, None, [1, 1, 2, 3, 3]),
        # Published: a step later, and once more while the message stays.
        (SCORE, PUBLISHED, [0, 1, 2, 3, 4]),
        ("NetHackScore-v1", None, [1, 1, 2, 3, 3]),
        ("NetHackScore-v1", PUBLISHED, [1, 1, 2, 3, 3]),
    ],
)
def test_a_kill_counts_once_but_not_as_published(task, compat, kills):
    results = play(task, {}, KILLS, compat=compat)

    assert [info["kills"] for *_, info in results] == kills
