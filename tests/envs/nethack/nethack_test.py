from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs.nethack.actions import ENHANCE, EXTENDED_KEYS, TASK_KEYS
from motif_jax.envs.nethack.buffers import BLANK_GLYPH
from motif_jax.envs.nethack.game import game_seeds
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import started

FIELDS = ("glyphs", "tty_chars", "tty_colors")


def actions_of(seed, count):
    return np.random.default_rng(seed).integers(0, len(TASK_KEYS), count)


def test_a_game_that_begins_with_a_question_for_a_line():
    """Its hero stands on a scroll that turns to dust, and is asked for a name for it."""
    env, out = started("NetHackScore-v1", 7782)
    assert env.step(0, out)[1] == RUNNING
    assert out["blstats"][10] > 0


def test_agrees_with_the_gymnasium_class_of_the_engine():
    """Observations, rewards and end of whole episodes; the kept stairs message and the eat rule
    aside.
    """
    import gymnasium
    import nle  # noqa: F401

    keys = ("glyphs", "blstats", "message", "tty_chars", "tty_colors")
    # The class reports its own limit, so it gets none in reach.
    reference = gymnasium.make(
        "NetHackScore-v0", observation_keys=keys, fix_moon_phase=True, max_episode_steps=100_000
    ).unwrapped
    ours, out = started("NetHackScore-v1", fields=FIELDS, max_episode_steps=100_000)
    for seed in (5, 6):
        reference.seed(*game_seeds(seed), reseed=False)
        expected, _ = reference.reset()
        ours.reset(seed, out)
        for step, action in enumerate(actions_of(seed, 3000)):
            if TASK_KEYS[action] == ord("e") or b"eat" in bytes(expected["message"]):
                action = 0
            for name in keys:
                is_shown_longer = (
                    name == "message" and b"You descend the stairs." in out[name].tobytes()
                )
                assert is_shown_longer or (out[name] == expected[name]).all(), name
            expected, reward, done, _, _ = reference.step(int(action))
            our_reward, end = ours.step(int(action), out)
            assert our_reward == pytest.approx(reward)
            assert (end == TERMINATED) == done
            if done:
                assert step > 200
                break
    ours.close()
    reference.close()


def test_how_games_end():
    """At the step limit as the game stood; dead, with nothing to see."""
    ends = []
    for limit in (300, 5000):
        env, out = started("NetHackScore-v1", 1, fields=FIELDS, max_episode_steps=limit)
        steps = [(0.0, RUNNING)]
        actions = iter(actions_of(1, limit))
        while steps[-1][1] == RUNNING:
            steps.append(env.step(int(next(actions)), out))
        info = env.episode_info()
        assert info["return"] == pytest.approx(sum(reward for reward, _ in steps))
        assert info["length"] == len(steps) - 1
        ends.append((steps[-1][1], info["end"], bool((out["glyphs"] != BLANK_GLYPH).any())))
        env.close()
    # At the limit the game is seen as it stood.
    assert ends == [(TRUNCATED, -1, True), (TERMINATED, 1, False)]


def test_engine_constants_are_ours():
    from nle import nethack
    from nle.env.tasks import TASK_ACTIONS

    from motif_jax.envs.nethack import buffers, status, tasks

    assert tuple(int(action) for action in TASK_ACTIONS) == TASK_KEYS
    names = "CAST QUAFF PRAY PICKUP PAY".split()
    assert tuple(int(nethack.Command[name]) for name in names) == EXTENDED_KEYS[23:]
    assert int(nethack.Command.ENHANCE) == ENHANCE
    assert nethack.GLYPH_CMAP_OFF == BLANK_GLYPH
    assert nethack.permonst(nethack.glyph_to_mon(tasks.ORACLE_GLYPH)).mname == "Oracle"
    assert nethack.BL_MASK_HALLU == tasks.HALLUCINATION
    names = "X Y SCORE HP HPMAX DEPTH GOLD EXP TIME HUNGER DNUM DLEVEL CONDITION XP".split()
    ours = "X Y SCORE HP MAX_HP DEPTH GOLD POINTS TIME HUNGER DUNGEON DUNGEON_LEVEL CONDITION LEVEL".split()
    for theirs, mine in zip(names, ours, strict=True):
        assert getattr(nethack, f"NLE_BL_{theirs}") == getattr(status, mine)
    for name, array in buffers.Buffers().engine_arrays().items():
        assert {"shape": array.shape, "dtype": array.dtype} == nethack.OBSERVATION_DESC[name]
