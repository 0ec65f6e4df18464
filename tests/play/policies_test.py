from __future__ import annotations

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.envs import registry
from motif_jax.envs.spec import MASKED, EnvironmentSpec
from motif_jax.play import fixed_shares
from motif_jax.rl.actors import policies
from motif_jax.rl.actors.policies import BotPolicy, FixedPolicy, RandomPolicy, Uniforms
from tests.play.stand_ins import RecordedProgress

LEVEL = "BabyAI-MixedTrainLocal-v0"


@pytest.fixture
def draws():
    """The uniform draws of a player with seed 3."""
    return [Uniforms(3).at(step) for step in range(20)]


LOST = {"bot_action": np.array(255, np.uint8)}


@pytest.fixture
def bot_spec():
    return registry.spec(LEVEL, fields=("bot_action",))


def test_a_bot_plays_the_action_of_its_answer(bot_spec):
    answer = {"bot_action": np.array(2, np.uint8)}

    assert BotPolicy().player(3, bot_spec)(answer) == 2
    np.testing.assert_array_equal(BotPolicy().probabilities(answer, bot_spec), np.eye(6)[2])


def test_a_bot_without_an_answer_plays_at_random(bot_spec):
    choose = BotPolicy().player(3, bot_spec)
    at_random = RandomPolicy().player(3, bot_spec)

    assert [choose(LOST) for _ in range(40)] == [at_random(LOST) for _ in range(40)]
    np.testing.assert_allclose(BotPolicy().probabilities(LOST, bot_spec), 1 / 6)


def test_an_answer_that_is_no_action_is_refused(bot_spec):
    answer = {"bot_action": np.array(6, np.uint8)}

    with pytest.raises(UserError, match="bot_action is 6"):
        BotPolicy().probabilities(answer, bot_spec)


CORRIDOR = registry.spec("tests.toys:Corridor")
RECALL = registry.spec("Recall-v0")
# Two states of the corridor, the second of which has no action.
MASKS = {"possible": np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])}


def test_actions_that_a_state_does_not_have_are_not_drawn(draws):
    choose = RandomPolicy().player(3, CORRIDOR)
    observation = {"possible": np.array([0, 1, 0, 1, 1])}

    actions = [choose(observation) for _ in draws]

    assert actions == [(1, 3, 4)[int(3 * draw)] for draw in draws]


def test_without_a_mask_all_actions_are_drawn(draws):
    choose = RandomPolicy().player(3, RECALL)

    actions = [choose({}) for _ in draws]

    assert actions == [int(RECALL.num_actions * draw) for draw in draws]


def test_random_actions_have_equal_probabilities():
    masked = RandomPolicy().probabilities(MASKS, CORRIDOR)
    free = RandomPolicy().probabilities({}, RECALL)

    np.testing.assert_array_equal(masked, [[0, 0.5, 0, 0.5, 0], [0] * 5])
    np.testing.assert_array_equal(
        free, np.full(RECALL.num_actions, 1 / RECALL.num_actions, np.float32)
    )


def test_logits_of_actions_that_a_state_lacks_are_masked():
    logits = np.array([[1.0, 2, 3, 4, 5], [1, 2, 3, 4, 5]])

    masked = policies.masked(logits, MASKS, CORRIDOR)

    assert (masked == MASKED).tolist() == (MASKS["possible"] == 0).tolist()
    assert policies.masked(logits, {}, RECALL) is logits


def test_fixed_shares_divide_the_draws(draws):
    # The shares of a file may add up to a little less than one.
    policy = FixedPolicy((0.25, 0.25, 0.5 - 1e-9))

    choose = policy.player(3, EnvironmentSpec({}, 3))

    assert [choose({}) for _ in draws] == np.searchsorted([0.25, 0.5], draws, side="right").tolist()


def test_fixed_shares_are_fitted_to_the_return(monkeypatch):
    progress = RecordedProgress()
    monkeypatch.setattr(fixed_shares, "Progress", progress)
    for name, value in {"ROUNDS": 4, "EPISODES": 40, "AVERAGED_ROUNDS": 2}.items():
        monkeypatch.setattr(fixed_shares, name, value)

    shares = np.array(fixed_shares.fit("BabyAI-GoToObjS4-v0", {"change": "adj_synonym"}, 1))

    # Who has to face things turns and walks.
    np.testing.assert_allclose(
        shares, [0.119443, 0.254087, 0.509464, 0.02571, 0.043401, 0.047895], rtol=1e-4
    )
    assert progress.entries[0] == (160, "episodes", "fit the best fixed shares of actions", 0)
    assert progress.entries[-1] == (160, {"mean return": pytest.approx(0.3360937)})


def test_fixed_shares_need_an_environment_without_masks():
    with pytest.raises(UserError, match=r"config\.policy=fixed: must be another for tests\.toys"):
        fixed_shares.fit("tests.toys:Corridor", {}, 1)
