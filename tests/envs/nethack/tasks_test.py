"""The published rules on given frames, and what is different when the switches are off."""

from __future__ import annotations

import itertools
import json

import pytest

from motif_jax.envs.nethack.actions import ESCAPE, QUIT, SPACE, TASK_KEYS
from motif_jax.envs.nethack.buffers import BLANK_GLYPH
from motif_jax.envs.nethack.game import END_LIMIT
from motif_jax.envs.nethack.tasks import HALLUCINATION, ORACLE_GLYPH, TASKS
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.conftest import load_golden
from tests.envs.nethack.fake_engine import FakeEngine, check_published, play, started_on

GOLDEN = load_golden("task_rules.json")
LIMIT_ENDS = {"timeout_as_terminal": True}


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"{case['env']}-{case['scenario']}"
)
def test_published_rules(case):
    check_published(case)


def test_keys_and_glyphs_equal_the_published_ones():
    assert list(TASK_KEYS) == GOLDEN["action_keys"]
    for step in (step for case in GOLDEN["cases"] for step in case["steps"]):
        assert TASK_KEYS[step["action_index"]] == step["action_key"]
    assert (GOLDEN["oracle_glyph"], GOLDEN["blank_glyph"]) == (ORACLE_GLYPH, BLANK_GLYPH)


ORACLE_BESIDE = [[10, 11, ORACLE_GLYPH]]
AS_PET = [[10, 11, GOLDEN["oracle_pet_glyph"]]]
BYTES = [[10, 9, 0x0E00], [10, 10, 0x0001]]


@pytest.mark.parametrize("task", ["NetHackOracle-v1", "NetHackOracleSober-v1"])
@pytest.mark.parametrize(("glyphs", "reward"), [(ORACLE_BESIDE, 50.0), (AS_PET, 0.0), (BYTES, 0.0)])
def test_the_oracle_is_a_glyph_and_no_pet_nor_bytes(task, glyphs, reward):
    """Bytes of two neighbours that read like its glyph together."""
    (step,) = play(task, {}, [(1, [{"time": 2, "cond": 0, "glyphs": glyphs}])])

    assert step[:2] == (reward, TERMINATED if reward else RUNNING)


@pytest.mark.parametrize(
    ("condition", "compat", "is_seen"),
    [
        (0x000, None, True),
        (0x001, None, True),
        (0x200, None, False),
        (0x201, None, False),
        (0x200, {"sober_mask": True}, False),
        # Published: the whole number is compared, and not its bit.
        (0x201, {"sober_mask": True}, True),
    ],
)
def test_a_hallucinating_hero_has_not_seen_the_oracle_soberly(condition, compat, is_seen):
    frame = {"time": 2, "cond": condition, "glyphs": ORACLE_BESIDE}

    (sober,) = play("NetHackOracleSober-v1", {}, [(1, [frame])], compat=compat)
    (plain,) = play("NetHackOracle-v1", {}, [(1, [frame])], compat=compat)

    assert sober[0] == (50.0 if is_seen else 0.0)
    assert plain[0] == 50.0


@pytest.mark.parametrize(
    ("stop", "prompt", "reward"),
    [(".", False, 50.0), ("", False, 50.0), (".", True, 50.0), ("", True, 0.0)],
)
def test_the_stairs_outlast_a_prompt_by_their_full_stop(stop, prompt, reward):
    shown = {"msg": f"You descend the stairs{stop}", "time": 2, "dlevel": 2}
    frames = [{**shown, "more": 1}, {"time": 2, "dlevel": 2}] if prompt else [shown]

    (step,) = play("NetHackStaircase-v1", {}, [(18, frames)])

    assert step[0] == reward


def test_oracle_is_seen_from_the_edge_of_the_map():
    for x, y in ((0, 10), (10, 0), (0, 0), (78, 20)):
        for column, row in itertools.product((x - 1, x, x + 1), (y - 1, y, y + 1)):
            if 0 <= column < 79 and 0 <= row < 21:
                frame = {"x": x, "y": y, "time": 2, "glyphs": [[row, column, ORACLE_GLYPH]]}
                for compat, is_seen in (
                    (None, True),
                    ({"oracle_patch_edge": True}, 0 not in (x, y)),
                ):
                    (result,) = play("NetHackOracle-v1", {}, [(1, [frame])], compat=compat)
                    assert result[:2] == ((50.0, TERMINATED) if is_seen else (0.0, RUNNING))


def test_step_limit_is_a_truncation():
    for task, (compat, end) in itertools.product(
        TASKS, ((None, TRUNCATED), (LIMIT_ENDS, TERMINATED))
    ):
        results = play(
            task, {}, [(1, [{"time": 2}]), (1, [{"time": 3}])], compat=compat, max_steps=2
        )
        assert [result[1] for result in results] == [RUNNING, end]
        assert results[1][4]["end"] == END_LIMIT == -1


def test_continual_pays_again_in_the_next_episode():
    env, out = started_on(engine := FakeEngine({}), "NetHackStaircaseContinual-v1")
    for _ in range(2):
        env.reset(0, out)
        for time, reward in ((2, 50.0), (3, 0.0)):
            engine.frames = [{"msg": "You descend the stairs.", "time": time, "dlevel": 2}]
            assert env.step(17, out) == (reward, RUNNING)
            assert env.episode_info()["success"] == 1


def test_scout_counts_the_latest_view_of_each_level():
    second = {"dlevel": 2, "depth": 2}
    other = {"dnum": 2}
    frames = [
        (1, 5, {}),
        (2, 8, {}),
        (3, 4, second),
        (4, 6, second),
        (5, 7, {}),
        (6, 9, other),
        (7, 1, other),
    ]
    first, *rest = [
        {"time": time, "glyphs": [[1, column, 5] for column in range(count)], **level}
        for time, count, level in frames
    ]
    played = play("NetHackScore-v1", first, [(1, [frame]) for frame in rest])
    scouts = [result[4]["scout"] for result in played]
    # Each is read before its step: first level 5, then 8; second level 4 and 6 on top; back on the
    # first level 7.
    assert scouts == [5, 8, 8 + 4, 8 + 6, 6 + 7, 6 + 7 + 9]


FIRST = {"score": 2, "depth": 3, "gold": 5, "xlvl": 4, "time": 6, "glyphs": [[1, 1, 7]]}
SECOND = {"score": 9, "depth": 4, "gold": 8, "xlvl": 5, "time": 7, "glyphs": [[1, 1, 7], [1, 2, 7]]}
THIRD = {**SECOND, "time": 8, "score": 12, "cond": HALLUCINATION, "glyphs": []}


def test_depth_gold_level_and_scout_precede_the_newest_step():
    ((reward, end, _, _, info),) = play("NetHackScore-v1", FIRST, [(1, [SECOND])])

    assert (reward, end) == (7.0, RUNNING)
    assert info == {
        "return": 7.0,
        "length": 1.0,
        "score": 9.0,
        "dlvl": 3.0,
        "gold": 5.0,
        "xlvl": 4.0,
        "scout": 1.0,
        "turns": 7.0,
        "success": 0.0,
        "end": 0.0,
        "hallucination": 0.0,
        "kills": 0.0,
    }


def test_hallucination_is_the_share_of_steps_that_show_it():
    _, (reward, end, _, _, info) = play("NetHackScore-v1", FIRST, [(1, [SECOND]), (1, [THIRD])])

    assert (reward, end) == (3.0, RUNNING)
    assert (info["return"], info["score"], info["turns"]) == (10.0, 12.0, 8.0)
    assert (info["dlvl"], info["gold"], info["xlvl"], info["scout"]) == (4.0, 8.0, 5.0, 2.0)
    assert info["hallucination"] == 0.5


def test_the_step_limit_quits_the_game_and_dismisses_its_menus():
    shown = [{}, {"more": 1}, {"getlin": 1}, {"yn": 1, "msg": "Really attack?"}, {}]
    steps = [(1, [SECOND]), (1, [THIRD, *shown])]

    _, (reward, end, keys, _, info) = play("NetHackScore-v1", FIRST, steps, max_steps=2)

    assert (reward, end) == (3.0, TRUNCATED)
    assert keys == [ord("k"), *QUIT, SPACE, ESCAPE, ESCAPE]
    assert (info["end"], info["length"]) == (END_LIMIT, 2)
    # Of the frame before the quit.
    assert (info["score"], info["turns"], info["hallucination"]) == (12.0, 8.0, 0.5)


def test_a_death_loses_the_score_but_not_the_numbers():
    """The engine's status is all zeros once the hero is dead."""
    dead = dict.fromkeys(("score", "depth", "gold", "xlvl", "time"), 0) | {"done": 1}

    _, (reward, end, _, _, info) = play("NetHackScore-v1", FIRST, [(1, [SECOND]), (1, [dead])])

    assert (reward, end) == (-9.0, TERMINATED)
    assert (info["return"], info["length"], info["end"]) == (-2.0, 2.0, 1.0)
    assert (info["score"], info["turns"]) == (9.0, 7.0)
    assert (info["dlvl"], info["gold"], info["xlvl"], info["scout"]) == (4.0, 8.0, 5.0, 2.0)


def test_a_reset_after_the_step_limit_sends_no_keys():
    env, out = started_on(engine := FakeEngine({}), max_episode_steps=1)
    env.step(1, out)
    quit_keys = [ord("k"), *QUIT]
    assert engine.keys == quit_keys

    env.reset(0, out)

    assert engine.keys == quit_keys
    assert env.episode_info()["end"] == 0


@pytest.mark.parametrize("off", [False, True])
def test_message_counts_equal_the_published_ones(off):
    numbers = load_golden("reward_norm.npz")
    episodes, expected = (json.loads(str(numbers[name])) for name in ("msg_episodes", "msg_counts"))
    env, out = started_on(engine := FakeEngine({}), compat={"message_count_off": off})
    for messages, counts in zip(episodes, expected, strict=True):
        engine.first = {"msg": messages[0]}
        counted = []
        env.reset(0, out)
        for message in (*messages[1:], ""):
            counted.append(float(out["message_count"]))
            engine.frames = [{"msg": message}]
            env.step(1, out)
        assert counted == ([1.0] * len(messages) if off else counts)
