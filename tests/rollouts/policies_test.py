"""Policies that play in the workers."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import ArraySpec, EnvironmentSpec
from motif_jax.rollouts import fixed_shares
from motif_jax.rollouts.policies import BotPolicy, FixedPolicy, RandomPolicy
from motif_jax.support.errors import UserError

LEVEL = "BabyAI-MixedTrainLocal-v0"


def test_a_bot_without_an_answer_plays_at_random():
    spec = registry.spec(LEVEL, fields=("bot_action",))
    choose = BotPolicy().player(3, spec)
    lost = {"bot_action": np.array(255, np.uint8)}
    drawn = [choose(lost) for _ in range(40)]
    at_random = RandomPolicy().player(3, spec)
    assert drawn == [at_random(lost) for _ in range(40)]
    assert choose({"bot_action": np.array(2, np.uint8)}) == 2
    np.testing.assert_array_equal(BotPolicy().probabilities({"bot_action": np.uint8(2)}, spec), np.eye(6)[2])
    np.testing.assert_allclose(BotPolicy().probabilities(lost, spec), 1 / 6)


def test_fixed_shares_are_kept_to_and_fitted_to_what_earns_most(monkeypatch):
    spec = registry.spec("BabyAI-GoToLocal-v0")
    choose = FixedPolicy((0.2, 0.0, 0.7, 0.0, 0.1, 0.0)).player(3, spec)
    shares = np.bincount([choose({}) for _ in range(4000)], minlength=6) / 4000
    np.testing.assert_allclose(shares, [0.2, 0, 0.7, 0, 0.1, 0], atol=0.03)
    for name, value in {"ROUNDS": 4, "EPISODES": 40, "LAST": 1}.items():
        monkeypatch.setattr(fixed_shares, name, value)
    found = np.array(fixed_shares.fit("BabyAI-GoToObjS4-v0", {"change": "adj_synonym"}, 1))
    assert found.sum() == pytest.approx(1)
    # Who has to face things turns and walks.
    assert found[:3].sum() > 0.8
    assert min(found[2], found[:2].sum()) > 0.1
    with pytest.raises(UserError, match=r"config\.policy=fixed: must be another for tests\.toys"):
        fixed_shares.fit("tests.toys:Corridor", {}, 1)


def test_a_spec_names_an_expert_only_among_its_optional_fields():
    with pytest.raises(ValueError, match="'oracle' is not among"):
        EnvironmentSpec({"x": ArraySpec((), "uint8")}, 2, expert_field="oracle")
