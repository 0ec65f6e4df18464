from __future__ import annotations

from typing import Any

import numpy as np

from motif_jax.envs import registry
from motif_jax.envs.recall import BEST_RETURN, Recall
from motif_jax.envs.spec import RUNNING, TERMINATED, TRUNCATED, empty_observation


def play(env: Recall, seed: int, answer: int | None) -> tuple[list[Any], list[float], list[int]]:
    out = empty_observation(env.spec)
    env.reset(seed, out)
    seen, rewards, ends = [{k: v.copy() for k, v in out.items()}], [], []
    cue = int(out["features"].argmax())
    while not ends or ends[-1] == RUNNING:
        reward, end = env.step(cue if answer is None else answer, out)
        seen.append({k: v.copy() for k, v in out.items()})
        rewards.append(reward)
        ends.append(end)
    return seen, rewards, ends


def test_only_the_cue_named_at_the_question_is_rewarded() -> None:
    env = registry.make("Recall-v0", cues=3, delay=2)
    seen, rewards, ends = play(env, seed=5, answer=None)
    assert rewards == [0.0, 0.0, 0.0, BEST_RETURN]
    assert ends == [RUNNING, RUNNING, RUNNING, TERMINATED]
    assert [int(o["sign_count"]) for o in seen] == [1, 1, 2, 1, 3]
    assert env.episode_info() == {"return": 1.0, "length": 4.0, "success": 1.0}
    cue = int(seen[0]["features"].argmax())
    assert play(env, seed=5, answer=(cue + 1) % 3)[1] == [0.0] * 4


def test_the_question_shows_nothing_of_the_cue() -> None:
    env = registry.make("Recall-v0", cues=4, delay=1)
    asked = {}
    for seed in range(20):
        seen, _, _ = play(env, seed, None)
        cue = int(seen[0]["features"].argmax())
        asked[cue] = [np.concatenate([o["features"], o["sign"]]) for o in seen[1:-1]]
    assert set(asked) == {0, 1, 2, 3}
    for rows in asked.values():
        np.testing.assert_array_equal(rows, asked[0])


def test_step_limit_truncates() -> None:
    _, rewards, ends = play(registry.make("Recall-v0", delay=4, max_episode_steps=3), 0, None)
    assert ends == [RUNNING, RUNNING, TRUNCATED]
    assert rewards == [0.0, 0.0, 0.0]
