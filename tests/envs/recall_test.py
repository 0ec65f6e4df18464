from __future__ import annotations

import pytest

from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import started


def episode(action_of_cue, **options):
    """Rewards and ends of an episode in which one action is taken throughout, by the cue that is
    shown.
    """
    env, out = started("Recall-v0", 3, **options)
    cue = int(bytes(out["sign"]).rstrip(b"\0")[-1:])
    steps = [(0.0, RUNNING)]
    while steps[-1][1] == RUNNING:
        steps.append(env.step(action_of_cue(cue), out))
    return steps[1:], env.episode_info()


@pytest.mark.parametrize("options", [{}, {"cues": 3, "delay": 2}, {"delay": 50}])
def test_only_the_cue_named_at_the_question_is_rewarded(options):
    right, info = episode(lambda cue: cue, **options)
    wrong, none = episode(lambda cue: 1 - min(cue, 1), **options)

    assert right == [(0.0, RUNNING)] * (len(right) - 1) + [(1.0, TERMINATED)]
    assert wrong == [(0.0, RUNNING)] * (len(wrong) - 1) + [(0.0, TERMINATED)]
    assert (info["success"], none["success"]) == (1, 0)


def test_the_question_comes_after_the_delay():
    env, out = started("Recall-v0", 3, cues=3, delay=2)
    signs = []
    for _ in range(4):
        signs.append(bytes(out["sign"]).rstrip(b"\0"))
        env.step(0, out)

    assert signs[0].startswith(b"the cue is ")
    assert signs[1:] == [b"", b"", b"which cue?"]


def test_a_limit_before_the_question_is_a_truncation():
    steps, info = episode(lambda cue: cue, delay=4, max_episode_steps=3)

    assert steps == [(0.0, RUNNING)] * 2 + [(0.0, TRUNCATED)]
    assert info["success"] == 0
