"""An agent's parts: which trunks and heads it has, what runs through them, and what is read of
their states.
"""

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

# Without layers: states are what is left of the embeddings of tokens and places.
MODEL = LanguageModel(dataclasses.replace(config.parse(recipes.CONFIGS["gpt2"]), layers=0))
TOKENS = recipes.tokens()[:, :5]
VALID = recipes.mask("right")[:, 5:]
RETURNS = jnp.array([0.5, -2.0, 1.0])


def agent_of(**design: Any) -> tuple[TextAgentNetwork, Any]:
    """An agent, and its fresh parameters moved so that parts of one beginning are told apart."""
    agent = TextAgentNetwork(MODEL, Design(**design))
    draws = np.random.default_rng(1)
    fresh = agent.init(jax.random.key(1))
    return agent, jax.tree.map(lambda leaf: leaf + draws.normal(0, 0.3, leaf.shape), fresh)


@pytest.mark.parametrize(
    ("design", "trunks", "heads", "target_heads"),
    [
        ({}, {"policy", "values", "target"}, ["v", "q1", "q2"], ["q1", "q2"]),
        ({"q": "none"}, {"policy"}, [], []),
        (
            {"q": "utterance", "v": False, "separate_policy": False},
            {"values", "target"},
            ["q1", "q2"],
            ["q1", "q2"],
        ),
        ({"q": "mean", "double_q": False}, {"policy", "values", "target"}, ["v", "q1"], ["q1"]),
        ({"separate_target": False}, {"policy", "values"}, ["v", "q1", "q2"], ["q1", "q2"]),
    ],
    ids=range(5),
)
def test_a_design_has_its_trunks_and_heads(
    design: dict[str, Any], trunks: set[str], heads: list[str], target_heads: list[str]
) -> None:
    agent, params = agent_of(**design)
    assert set(params["trunks"]) == trunks
    assert list(agent.heads.configs) == heads
    assert list(agent.target_heads.configs) == target_heads
    assert set(params.get("heads", {})) == set(heads)
    assert set(params.get("target_heads", {})) == set(target_heads)


def test_targets_begin_as_copies_of_the_online_parts() -> None:
    params = TextAgentNetwork(MODEL, Design()).init(jax.random.key(1))
    for name in ("q1", "q2"):
        jax.tree.map(
            np.testing.assert_array_equal, params["target_heads"][name], params["heads"][name]
        )
    jax.tree.map(
        np.testing.assert_array_equal, params["trunks"]["target"], params["trunks"]["values"]
    )
    assert not np.array_equal(
        params["trunks"]["policy"]["embedding"], params["trunks"]["values"]["embedding"]
    )


@pytest.mark.parametrize(
    ("q", "outputs"), [("token", recipes.VOCAB), ("utterance", 1), ("mean", 1)]
)
def test_qs_are_of_every_token_or_of_one_utterance(q: str, outputs: int) -> None:
    agent, params = agent_of(q=q)
    readout = agent.readouts(params, TOKENS, VALID)
    shape = (*TOKENS.shape, outputs) if outputs > 1 else TOKENS.shape
    assert {q.shape for q in readout.qs} == {shape}
    assert readout.values is not None
    assert readout.values.shape == TOKENS.shape
    assert readout.logits.shape == (*TOKENS.shape, recipes.VOCAB)


def test_what_is_read_is_the_heads_of_the_parts_states() -> None:
    agent, params = agent_of()
    states = {
        name: MODEL.prefill(params["trunks"][name], TOKENS, VALID)[0]
        for name in ("policy", "values", "target")
    }
    readout = agent.readouts(params, TOKENS, VALID)
    logits = MODEL.logits(params["trunks"]["policy"], states["policy"].after)
    np.testing.assert_allclose(readout.logits, logits, rtol=1e-4, atol=1e-5)
    for number, name in enumerate(("q1", "q2")):
        q = agent.heads.apply(params["heads"], name, states["values"])
        np.testing.assert_allclose(readout.qs[number], q, rtol=1e-4, atol=1e-5)
    targets = [
        agent.heads.apply(params["target_heads"], name, states["target"]) for name in ("q1", "q2")
    ]
    np.testing.assert_allclose(readout.target_q, np.minimum(*targets), rtol=1e-4, atol=1e-5)


def test_a_policy_alone_has_no_values() -> None:
    agent, params = agent_of(q="none")
    readout = agent.readouts(params, TOKENS, VALID)
    assert (readout.values, readout.qs, readout.target_q) == (None, (), None)


def test_a_mean_q_reads_the_states_mean_so_far() -> None:
    agent, params = agent_of(q="mean", double_q=False)
    states, _ = MODEL.prefill(params["trunks"]["values"], TOKENS, VALID)
    row = int(np.argmax(np.asarray(VALID).sum(axis=1)))
    readout = agent.readouts(params, TOKENS, VALID)
    for position in range(int(VALID[row].sum())):
        mean = states.after[row, : position + 1].mean(axis=0)
        expected = agent.heads.apply(params["heads"], "q1", type(states)(mean, mean))
        np.testing.assert_allclose(readout.qs[0][row, position], expected, rtol=1e-4, atol=1e-4)


def test_the_return_stands_before_the_tokens_as_an_embedding() -> None:
    agent, params = agent_of(prefix=True)
    layer = params["prefix"]
    expected = np.asarray(RETURNS)[:, None] * np.asarray(layer["kernel"]) + np.asarray(
        layer["bias"]
    )
    np.testing.assert_allclose(agent.prefix(params, RETURNS), expected, rtol=1e-5)
    states = agent.run(params, TOKENS, VALID, returns=RETURNS)
    assert states["policy"].after.shape[:2] == TOKENS.shape


def test_parts_that_share_a_trunk_share_their_states() -> None:
    agent, params = agent_of(separate_policy=False, separate_target=False)
    states = agent.run(params, TOKENS, VALID)
    assert states["policy"] is states["values"] is states["target"]


def test_only_the_asked_parts_are_run() -> None:
    agent, params = agent_of()
    assert list(agent.run(params, TOKENS, VALID, ("target", "values"))) == ["target", "values"]
    policy_alone, policy_params = agent_of(q="none")
    assert list(policy_alone.run(policy_params, TOKENS, VALID)) == ["policy"]


def test_dropout_is_of_the_trunks_with_a_key() -> None:
    agent, params = agent_of()
    plain = agent.run(params, TOKENS, VALID)
    dropped = agent.run(params, TOKENS, VALID, dropout={"values": jax.random.key(7)})
    assert not np.array_equal(plain["values"].after, dropped["values"].after)
    np.testing.assert_array_equal(plain["target"].after, dropped["target"].after)
