"""An agent's parts: which trunks and heads it has, what runs through them, and what is read of their states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language import text_agent
from motif_jax.language.config import Dropout
from motif_jax.language.heads import HeadConfig
from motif_jax.language.network import States
from motif_jax.language.text_agent import Design, TextAgentNetwork

WIDTH, VOCAB = 3, 5
APART = {"policy": "policy", "values": "values", "target": "target"}
Q, V, ONE = HeadConfig(VOCAB, (6,)), HeadConfig(1, (6,)), {"policy": "policy"}
DEEP = {"widths": (12,), "dropout": 0.4, "kind": "residual", "activation": "gelu", "state": "before"}
DEEP_Q: Any = HeadConfig(VOCAB, **DEEP)  # type: ignore[arg-type]
DESIGNS: list[tuple[dict[str, Any], dict[str, str], dict[str, HeadConfig]]] = [
    ({}, APART, {"v": V, "q1": Q, "q2": Q}),
    ({"q": "none"}, ONE, {}),
    ({"q": "utterance", "double_q": False}, APART, {"v": V, "q1": V}),
    ({"v": False, "separate_policy": False}, {**APART, "policy": "values"}, {"q1": Q, "q2": Q}),
    ({"v": False, "double_q": False, "separate_target": False}, {**APART, "target": "values"}, {"q1": Q}),
    ({"residual": True, "v": False, "double_q": False}, APART, {"q1": DEEP_Q}),
]


class Words:
    """A model of nothing but a table: states are embeddings and their squares, changed by its key where dropout is on."""

    config = SimpleNamespace(width=WIDTH, vocab_size=VOCAB, dropout=Dropout(attention=0.4))
    dtype = jnp.float32

    def __init__(self, more: float = 0.0) -> None:
        self.more = more

    def init(self, key: jax.Array) -> Any:
        return jax.random.normal(key, (VOCAB, WIDTH))

    def with_dropout(self, more: float) -> Words:
        return Words(more)

    def embed(self, table: Any, tokens: Any) -> Any:
        return table[tokens]

    def logits(self, table: Any, states: Any) -> Any:
        return states @ table.T

    def prefill(self, table: Any, tokens: Any, valid: Any, embeddings: Any = None) -> tuple[States, None]:
        x = table[tokens] if embeddings is None else embeddings
        x = (jnp.cumsum(x, axis=1) + self.more) * valid[..., None]
        return States(x, x**2), None


def made(**design: Any) -> TextAgentNetwork:
    return TextAgentNetwork(Words(), Design(**design))  # type: ignore[arg-type]


TOKENS, VALID = jnp.array([[1, 2, 0], [4, 3, 3]]), jnp.array([[True, True, False], [True] * 3])


@pytest.mark.parametrize(("design", "trunk_of", "configs"), DESIGNS)
def test_a_design_has_its_trunks_and_heads_and_targets_start_as_copies(design, trunk_of, configs) -> None:
    agent = made(**design)
    assert agent.design.roles.trunk_of == trunk_of
    assert (agent.heads.width, agent.heads.dtype, dict(agent.heads.configs)) == (WIDTH, jnp.float32, configs)
    targets = {name: config for name, config in configs.items() if name != "v"}
    assert list(agent.heads.configs) == list(configs)
    assert (agent.target_heads.width, dict(agent.target_heads.configs)) == (WIDTH, targets)
    params = jax.device_get(agent.init(jax.random.key(0)))
    assert params["trunks"].keys() == set(trunk_of.values())
    assert params.keys() == {"trunks"} | ({"heads", "target_heads"} if configs else set())
    if configs:
        jax.tree.map(
            np.testing.assert_array_equal, params["target_heads"], {q: params["heads"][q] for q in targets}
        )
    if {"values", "target"} <= params["trunks"].keys():
        np.testing.assert_array_equal(params["trunks"]["target"], params["trunks"]["values"])
    trunks = [leaf[0, 0] for name, leaf in params["trunks"].items() if name != "target"]
    assert len({*trunks}) == len(trunks)


@pytest.mark.parametrize(
    "design", [{}, {"double_q": False, "separate_policy": False}, {"q": "mean"}, {"prefix": True}]
)
def test_what_is_read_is_of_each_parts_own_states(design: dict[str, Any]) -> None:
    agent, returns = made(**design), jnp.array([0.5, -2.0])
    params = agent.init(jax.random.key(1))
    params["trunks"] = {name: (1 + i) * leaf for i, (name, leaf) in enumerate(params["trunks"].items())}
    params["target_heads"] = jax.tree.map(lambda leaf: leaf + 0.3, params.get("target_heads"))
    trunks, trunk_of, states = params["trunks"], agent.design.roles.trunk_of, {}
    for part, name in trunk_of.items():
        x = np.asarray(trunks[name])[np.asarray(TOKENS)].cumsum(axis=1)
        if agent.design.prefix:
            layer = params["prefix"]
            assert {key: leaf.shape for key, leaf in layer.items()} == {"kernel": (WIDTH,), "bias": (WIDTH,)}
            assert float(jnp.abs(jnp.stack([*layer.values()])).max()) <= 1
            x = x + (np.asarray(returns)[:, None] * layer["kernel"] + layer["bias"])[:, None]
        x = x**2 * np.asarray(VALID)[..., None]
        if design.get("q") == "mean" and part != "policy":
            x = x.cumsum(axis=1) / np.asarray(VALID).cumsum(axis=1)[..., None]
        states[part] = x
    found = agent.look(params, TOKENS, VALID, returns)
    table = np.asarray(trunks[trunk_of["policy"]])
    of = lambda which, name, part: agent.heads.apply(params[which], name, jnp.asarray(states[part]))  # noqa: E731
    wanted = [states["policy"] @ table.T, of("heads", "v", "values")]
    wanted += [of("heads", name, "values") for name in agent.design.qs]
    wanted += [jnp.stack([of("target_heads", name, "target") for name in agent.design.qs]).min(axis=0)]
    for one, other in zip((found.logits, found.values, *found.qs, found.target_q), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_parts_that_are_there_are_run_each_trunk_once_with_its_own_dropout() -> None:
    agent = made(separate_policy=False)
    params = agent.init(jax.random.key(1))
    plain = agent.run(params, TOKENS, VALID)
    assert list(plain) == ["policy", "values", "target"]
    assert plain["policy"] is plain["values"]
    dropped = agent.run(params, TOKENS, VALID, ("target", "values"), dropout={"values": 7.0})  # type: ignore[dict-item]
    assert list(dropped) == ["target", "values"]
    np.testing.assert_array_equal(dropped["target"].before, plain["target"].before)
    np.testing.assert_allclose(
        dropped["values"].before, plain["values"].before + 7 * VALID[..., None], rtol=1e-6
    )
    alone = made(q="none")
    params = alone.init(jax.random.key(1))
    assert list(alone.run(params, TOKENS, VALID)) == ["policy"]
    found = alone.look(params, TOKENS, VALID)
    assert (found.values, found.qs, found.target_q) == (None, (), None)
    no_v = made(v=False)
    assert no_v.look(no_v.init(jax.random.key(1)), TOKENS, VALID).values is None


def test_means_are_of_the_tokens_that_are_there() -> None:
    x = jnp.array([[[2.0], [4.0], [9.0]], [[5.0], [3.0], [8.0]]])
    valid = jnp.array([[True, True, False], [False, True, True]])
    assert text_agent.running_mean(x, valid)[..., 0].tolist() == [[2, 3, 3], [0, 3, 5.5]]
    assert text_agent.running_mean(x.astype(jnp.bfloat16), valid).dtype == jnp.bfloat16
