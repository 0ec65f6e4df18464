"""A config of a text agent becomes the network, the loss and the layout of its batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import pytest

from motif_jax.ilql import train_text
from motif_jax.ilql.agent import agent_start
from motif_jax.ilql.agent.text_agent import Design
from motif_jax.ilql.config import LossWeights, TextConfig
from motif_jax.ilql.methods import RULES
from motif_jax.lm import init_model
from motif_jax.lm.init_model import Sizes
from motif_jax.schema import read_section
from tests.reward_fixtures import load_config

TOKENS = {"start": 1, "pad": 2, "end": 3}
# A model of 48 positions.
MODEL = init_model.make("gpt2", Sizes(8, 1, 2, max_length=48), 40, TOKENS)
ALL_TERMS = LossWeights(q=2.0, v=3.0, policy=4.0, cql=5.0, margin=6.0)
LOSS = {"loss.q": 2.0, "loss.v": 3.0, "loss.policy": 4.0, "loss.cql": 5.0, "loss.margin": 6.0}


def config_of(method: str = "ilql", variant: str = "wordle_ilql", **values: Any) -> TextConfig:
    return read_section(
        TextConfig, load_config("train_text", variant, {"method.name": method, **values})
    )


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        *((name, LossWeights(q=0.0, v=0.0, policy=4.0)) for name in ("bc", "bc_top", "dt")),
        *((name, ALL_TERMS) for name in ("ilql", "sarsa", "awac", "cql", "psi", "bcq", "g")),
        # One Q of the whole utterance: there is none of other actions to lower.
        ("ilql_utterance", LossWeights(q=2.0, v=3.0, policy=4.0)),
        # The policy is frozen, and there is no V.
        ("chai", LossWeights(q=2.0, v=0.0, policy=0.0, cql=5.0)),
    ],
)  # fmt: skip
def test_a_method_weighs_the_terms_that_it_has(method: str, weights: LossWeights) -> None:
    assert train_text.objective_of(config_of(method, **LOSS), MODEL).weights == weights


@pytest.mark.parametrize("method", RULES)
def test_an_agent_has_the_parts_of_its_method(method: str) -> None:
    values = {
        "method.double_q": True,
        "method.separate_policy": True,
        "method.separate_target": True,
        "method.advanced_mlp": True,
    }

    design = train_text.objective_of(config_of(method, **values), MODEL).agent.design

    kinds = {"ilql_utterance": "utterance", "chai": "mean"} | dict.fromkeys(
        ("bc", "bc_top", "dt"), "none"
    )
    # CHAI's values have no trunk of their own: it is the frozen policy's.
    is_chai = method == "chai"
    assert design == Design(
        q=kinds.get(method, "token"),
        v=not is_chai,
        double_q=True,
        separate_policy=not is_chai,
        separate_target=not is_chai,
        residual=True,
        prefix=method == "dt",
    )


@pytest.mark.parametrize("method", RULES)
def test_q_of_tokens_has_the_rank_of_the_additions_to_the_trunk(method: str) -> None:
    low_rank = {"lora.patterns": "*/attention/*", "lora.rank": 3}

    design = agent_start.design_of(config_of(method, **low_rank))

    of_tokens = design.q == "token"
    assert design.rank == (3 if of_tokens else None)
    assert agent_start.design_of(config_of(method)).rank is None


def test_values_beside_additions_are_as_small_as_these() -> None:
    """SmolLM2's sizes: the published heads have 115 million numbers."""
    config = config_of(**{"lora.patterns": "*/attention/*"})
    sizes = init_model.make("gpt2", Sizes(576, 1, 2, max_length=48), 49_152, TOKENS)

    heads = train_text.objective_of(config, sizes).agent.heads

    leaves = jax.tree.leaves(jax.eval_shape(heads.init, jax.random.key(0)))
    assert sum(leaf.size for leaf in leaves) == 2_802_435


@pytest.mark.parametrize("method", RULES)
def test_items_are_of_utterances_where_q_is(method: str) -> None:
    layout = train_text.layout_of(config_of(method, accumulate=3), 26, MODEL)

    assert layout.by_utterance == (method in ("ilql_utterance", "chai"))
    assert layout.pad == 26
    assert layout.micro_batches == 3


@pytest.mark.parametrize(
    ("method", "room"),
    # A return before the dialogue, a candidate of six tokens after it.
    [("ilql", 48), ("dt", 48 - 1), ("chai", 48 - 6)],
)
def test_a_dialogue_leaves_room_for_what_the_method_adds(method: str, room: int) -> None:
    config = config_of(method, **{"candidates.max_tokens": 6})

    assert train_text.room_of(config, MODEL) == room


def test_a_model_without_a_table_of_positions_has_any_room() -> None:
    assert train_text.room_of(config_of(), dataclasses.replace(MODEL, max_length=None)) is None


@pytest.mark.parametrize(("max_len", "cut"), [(None, 48), (41, 41), (100, 48)])
def test_dialogues_are_cut_to_the_smaller_limit(max_len: int | None, cut: int) -> None:
    assert train_text.layout_of(config_of(max_len=max_len), 26, MODEL).max_len == cut
