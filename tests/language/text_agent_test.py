"""An agent's parts: which trunks and heads it has, what runs through them, and what is read of their states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from motif_jax.language.config import Dropout
from motif_jax.language.network import States
from motif_jax.language.text_agent import Design, TextAgentNetwork
from tests.recorded_outputs import compared, shown_array

WIDTH, VOCAB = 3, 5
DESIGNS: list[dict[str, Any]] = [
    {"prefix": True}, {"q": "none"}, {"q": "utterance", "v": False, "separate_policy": False},
    {"q": "mean", "double_q": False}, {"residual": True, "separate_target": False},
]  # fmt: skip


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


def test_what_agents_are_made_of_and_what_is_read_of_them_stay_what_they_were(record: bool) -> None:
    parts = {}
    for place, design in enumerate(DESIGNS):
        agent = made(**design)
        params = fresh = agent.init(jax.random.key(1))
        if "target_heads" in fresh:
            params = {**fresh, "target_heads": jax.tree.map(lambda leaf: leaf + 0.3, fresh["target_heads"])}
        # Trunks of one beginning are told apart.
        params["trunks"] = {name: (1 + i) * leaf for i, (name, leaf) in enumerate(fresh["trunks"].items())}
        returns = jnp.array([0.5, -2.0])
        found = agent.look(params, TOKENS, VALID, returns)
        keys: Any = {"values": 7.0}
        states = agent.run(params, TOKENS, VALID, ("target", "values"), returns, dropout=keys)
        shown = jax.tree_util.tree_leaves_with_path((fresh, found, list(states.items())))
        heads = {name: repr(config) for name, config in agent.heads.configs.items()}
        about = [
            agent.design.roles,
            agent.heads.width,
            agent.heads.dtype,
            heads,
            list(agent.target_heads.configs),
        ]
        lines = [f"{jax.tree_util.keystr(path)} {shown_array(leaf)}" for path, leaf in shown]
        parts[str(place)] = "\n".join([*map(str, about), *lines])
    compared("text_agent_designs", parts, record)
