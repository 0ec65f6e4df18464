from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import MASKED
from motif_jax.play import fixed_shares, policies
from motif_jax.play.episode_worker import Uniforms
from motif_jax.play.policies import BotPolicy, FixedPolicy, RandomPolicy
from tests.play.told import Told

LEVEL = "BabyAI-MixedTrainLocal-v0"


def test_a_bot_without_an_answer_plays_at_random():
    spec = registry.spec(LEVEL, fields=("bot_action",))
    choose = BotPolicy().player(3, spec)
    lost = {"bot_action": np.array(255, np.uint8)}
    at_random = RandomPolicy().player(3, spec)
    assert [choose(lost) for _ in range(40)] == [at_random(lost) for _ in range(40)]
    assert choose({"bot_action": np.array(2, np.uint8)}) == 2
    np.testing.assert_array_equal(BotPolicy().probabilities({"bot_action": np.uint8(2)}, spec), np.eye(6)[2])
    np.testing.assert_allclose(BotPolicy().probabilities(lost, spec), 1 / 6)


def test_actions_that_a_state_does_not_have_are_not_drawn():
    spec = registry.spec("tests.toys:Corridor")
    draws = [Uniforms(3).at(step) for step in range(20)]
    choose = RandomPolicy().player(3, spec)
    observation = {"possible": np.array([0, 1, 0, 1, 1])}
    assert [choose(observation) for _ in range(20)] == [(1, 3, 4)[int(3 * draw)] for draw in draws]
    masks = {"possible": np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])}
    np.testing.assert_array_equal(RandomPolicy().probabilities(masks, spec), [[0, 0.5, 0, 0.5, 0], [0] * 5])
    free = registry.spec("Recall-v0")
    choose = RandomPolicy().player(3, free)
    assert [choose({}) for _ in range(20)] == [int(free.num_actions * draw) for draw in draws]
    probabilities = RandomPolicy().probabilities({}, free)
    np.testing.assert_array_equal(probabilities, np.full(free.num_actions, 1 / free.num_actions, np.float32))
    logits = np.array([[1.0, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    assert (policies.masked(logits, masks, spec) == MASKED).tolist() == (masks["possible"] == 0).tolist()
    assert policies.masked(logits, {}, free) is logits
    choose = FixedPolicy((0.25, 0.25, 0.5 - 1e-9)).player(3, SimpleNamespace(num_actions=3))
    assert [choose({}) for _ in range(20)] == [0 if draw < 0.25 else 1 if draw < 0.5 else 2 for draw in draws]


def test_fixed_shares_are_played_and_fitted_to_the_return(monkeypatch):
    for name, value in {"ROUNDS": 4, "EPISODES": 40, "AVERAGED_ROUNDS": 2}.items():
        monkeypatch.setattr(fixed_shares, name, value)
    monkeypatch.setattr(fixed_shares, "Progress", progress := Told())
    shares = np.array(fixed_shares.fit("BabyAI-GoToObjS4-v0", {"change": "adj_synonym"}, 1))
    assert progress.said[0] == (160, "episodes", "fit the best fixed shares of actions", 0)
    assert progress.said[-1] == (160, {"mean return": pytest.approx(0.3360937)})
    # Who has to face things turns and walks.
    np.testing.assert_allclose(shares, [0.119443, 0.254087, 0.509464, 0.02571, 0.043401, 0.047895], rtol=1e-4)
    with pytest.raises(UserError, match=r"config\.policy=fixed: must be another for tests\.toys"):
        fixed_shares.fit("tests.toys:Corridor", {}, 1)
