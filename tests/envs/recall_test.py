from __future__ import annotations

from motif_jax.envs.recall import BEST_RETURN
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED
from tests.envs.playing import started


def play(seed, wrong=0, **options):
    """The cue, what is shown, rewards and ends, and the episode's numbers, where `wrong` is added to the cue as the answer."""
    env, out = started("Recall-v0", seed, **options)
    seen, steps = [{name: array.copy() for name, array in out.items()}], []
    cue = int(out["features"].argmax())
    while not steps or steps[-1][1] == RUNNING:
        steps.append(env.step((cue + wrong) % env.spec.num_actions, out))
        seen.append({name: array.copy() for name, array in out.items()})
    return cue, seen, steps, env.episode_info()


def test_only_the_cue_named_at_the_question_is_rewarded():
    cue, seen, steps, info = play(5, cues=3, delay=2)
    assert steps == [(0.0, RUNNING)] * 3 + [(BEST_RETURN, TERMINATED)]
    assert [int(shown["sign_count"]) for shown in seen] == [1, 1, 2, 1, 3]
    signs = [shown["sign"].tobytes().rstrip(b"\0").decode() for shown in seen]
    assert signs == [f"the cue is {cue}", "", "", "which cue?", ""]
    places = [cue, None, None, 3, None]
    assert [shown["features"].tolist() for shown in seen] == [
        [float(at == place) for at in range(4)] for place in places
    ]
    assert info == {"return": 1.0, "length": 4.0, "success": 1.0}
    assert play(5, wrong=1, cues=3, delay=2)[2] == [(0.0, RUNNING)] * 3 + [(0.0, TERMINATED)]


def test_step_limit_truncates():
    assert [len(play(0, **options)[2]) for options in ({}, {"delay": 200})] == [6, 100]
    assert play(0, delay=4, max_episode_steps=3)[2] == [(0.0, RUNNING)] * 2 + [(0.0, TRUNCATED)]
