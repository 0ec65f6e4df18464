"""Policies that play in the workers."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs import registry
from motif_jax.envs.spec import TERMINATED, ArraySpec, EnvironmentSpec
from motif_jax.playing.episodes import How, play_episodes
from motif_jax.playing.policies import BotPolicy, RandomPolicy

LEVEL = "BabyAI-MixedTrainLocal-v0"


def test_the_bot_solves_what_random_actions_do_not():
    options = {"fields": ("bot_action",)}
    solved = {}
    for policy in (BotPolicy(), RandomPolicy()):
        played = list(play_episodes(LEVEL, options, range(12), policy, How(workers=1, lanes=4)))
        solved[policy.name] = sum(episode.end == TERMINATED for episode in played)
    assert solved["bot"] == 12
    assert solved["random"] < 6


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


def test_a_spec_names_an_expert_only_among_its_optional_fields():
    with pytest.raises(ValueError, match="'oracle' is not among"):
        EnvironmentSpec({"x": ArraySpec((), "uint8")}, 2, expert_field="oracle")
