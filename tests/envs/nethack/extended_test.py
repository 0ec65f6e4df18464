"""The tasks with 28 actions: the published rules on given frames, and what is different when the switch is off."""

from __future__ import annotations

import copy

import pytest

from motif_jax.envs.spec import RUNNING, TERMINATED
from tests.conftest import load_golden
from tests.envs.nethack.fake_engine import check_published, play

GOLDEN = load_golden("oni/oni_task_rules.json")
SCORE, STAIRCASE = "NetHackScoreExtendedActions-v1", "NetHackStaircaseExtendedActions-v1"
CAST, DRINK, NORTH, YES, DOWN = 23, 24, 1, 8, 18
SKILL = "You feel more confident in your martial arts skills."
IMPROVED = [{"msg": "Pick a skill"}, {"msg": "You are now more skilled.", "time": 2}]
ENHANCE = [229, 97]
STAIRS = {"msg": f"You descend the stairs.  {SKILL}", "time": 2, "dlevel": 2}
PUBLISHED = {"oni_extended_steps": True}


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: f"{case['env']}-{case['scenario']}")
def test_published_rules(case):
    waiting: list[bool] = []
    steps = [(step["action_index"], step["frames"]) for step in case["steps"]]

    def note(game):
        waiting.append(game._skill_waits)

    results = play(case["env"], case["prev"], steps, compat=PUBLISHED, after=note)
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


@pytest.mark.parametrize(
    ("action", "frames", "keys", "published"),
    [
        (CAST, [CHOOSE, TOLD], [90, 97, *ENHANCE], [90, 97]),
        (CAST, [CHOOSE, {**TOLD, "more": 1}, {"time": 2}], [90, 97, 32, *ENHANCE], [90, 97, 32]),
        # An escaped question leaves a prompt for the next step.
        (NORTH, [WAITS, {"msg": "You stop.", "more": 1}, {"time": 2}], [107, 27, 32], [107, 27]),
    ],
)
def test_a_skill_message_and_prompts(action, frames, keys, published):
    for compat, expected in ((None, keys), (PUBLISHED, published)):
        ((_, _, sent, *_),) = play(SCORE, {}, [(action, [*frames, *IMPROVED])], compat=compat)
        assert sent == expected


@pytest.mark.parametrize(
    ("compat", "paid", "end", "message"),
    [(None, 50.0, TERMINATED, STAIRS["msg"]), (PUBLISHED, 0.0, RUNNING, "You are now more skilled.")],
)
def test_improving_a_skill_on_the_stairs(compat, paid, end, message):
    frames = [STAIRS, {**STAIRS, "msg": "Pick a skill"}, {**STAIRS, "msg": "You are now more skilled."}]
    ((reward, ended, keys, shown, info),) = play(STAIRCASE, {}, [(DOWN, frames)], compat=compat)
    assert keys[:3] == [62, *ENHANCE]
    assert (reward, ended, shown) == (paid, end, message)
    assert info["success"] == (paid > 0)


@pytest.mark.parametrize(("compat", "enhances"), [(None, True), (PUBLISHED, False)])
def test_a_skill_message_under_the_kept_sentence_of_the_stairs(compat, enhances):
    down = {"msg": "You descend the stairs.", "time": 2, "dlevel": 2}
    frames = [{**down, "more": 1}, *({**down, "msg": said} for said in (SKILL, "Pick a skill", ""))]
    ((reward, _, keys, *_),) = play(STAIRCASE, {}, [(DOWN, frames)], compat=compat)
    assert reward == 50.0
    assert keys[:4] == ([62, 32, *ENHANCE] if enhances else [62, 32, 241, 121][: len(keys[:4])])


def test_a_skill_waits_for_the_answer_to_an_open_question_and_no_longer_than_its_episode():
    asked = {"msg": f"{SKILL}  Really attack the gnome?", "yn": 1}
    results = play(SCORE, {}, [(NORTH, [asked]), (YES, [{"msg": "You hit it.", "time": 2}, *IMPROVED])])
    assert [keys for _, _, keys, *_ in results] == [[107], [121, *ENHANCE]]


KILL = {"msg": "You kill the newt!"}
OTHER = {"msg": "Kaboom!  YOU KILL the rat!  You kill the newt!"}


@pytest.mark.parametrize(
    ("task", "compat", "kills"),
    [
        ("NetHackScore-v1", None, [1, 1, 2, 3, 3]),
        (SCORE, None, [1, 1, 2, 3, 3]),
        (SCORE, PUBLISHED, [0, 1, 2, 3, 4]),
    ],
    ids=["23 actions", "once", "published"],
)
def test_a_kill_is_counted_once(task, compat, kills):
    steps = [
        (NORTH, [{**KILL, "time": 2, "points": 1}]),
        (NORTH, [{**KILL, "time": 2, "points": 1}]),  # a key that took no time: the message stays
        (NORTH, [{**KILL, "time": 2, "points": 2}]),  # another newt, within the same turn
        (NORTH, [{**OTHER, "time": 3, "points": 9}]),
        (NORTH, [{"time": 4, "points": 9}]),
    ]
    counted = [info["kills"] for *_, info in play(task, {}, steps, compat=compat)]
    assert counted == kills
