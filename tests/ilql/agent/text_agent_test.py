"""An agent's parts: which trunks and heads it has, what runs through them, and what is read of their states."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql.agent.text_agent import Design, TextAgentNetwork
from motif_jax.lm import config
from motif_jax.lm.model import LanguageModel
from tests.lm import recipes
from tests.recorded_outputs import assert_matches_packed_recording, shown_array

DESIGNS: list[dict[str, Any]] = [
    {"prefix": True},
    {"q": "none"},
    {"q": "utterance", "v": False, "separate_policy": False},
    {"q": "mean", "double_q": False},
    {"residual": True, "separate_target": False},
]


@pytest.mark.slow
def test_what_agents_are_made_of_and_what_is_read_of_them_stay_what_they_were(record: bool) -> None:
    # Without layers: states are what is left of the embeddings of tokens and places.
    model = LanguageModel(dataclasses.replace(config.parse(recipes.CONFIGS["gpt2"]), layers=0))
    tokens, valid, parts = recipes.tokens()[:, :5], recipes.mask("right")[:, 5:], {}
    draws = np.random.default_rng(1)
    returns, dropout = jnp.array([0.5, -2.0, 1.0]), {"values": jax.random.key(7)}
    for place, design in enumerate(DESIGNS):
        agent = TextAgentNetwork(model, Design(**design))
        fresh = agent.init(jax.random.key(1))
        # Parts of one beginning are told apart.
        params = jax.tree.map(lambda leaf: leaf + draws.normal(0, 0.3, leaf.shape), fresh)
        found = jax.jit(agent.look)(params, tokens, valid, returns)
        states = agent.run(params, tokens, valid, ("target", "values"), returns, dropout=dropout)
        shown = jax.tree_util.tree_leaves_with_path((fresh, found, list(states.items())))
        about = agent.design.roles, agent.heads, list(agent.target_heads.configs)
        lines = [f"{jax.tree_util.keystr(path)} {shown_array(leaf)}" for path, leaf in shown]
        parts[str(place)] = "\n".join([*map(str, about), *lines])
    assert_matches_packed_recording("text_agent_designs", parts, record)
