"""An agent's parts: which trunks and heads it has, what runs through them, and what is read of their states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motif_jax.language import text_agent
from motif_jax.language.config import Dropout
from motif_jax.language.network import States
from motif_jax.language.text_agent import Design, TextAgentNetwork
from tests.recorded_outputs import compared, shown_array

WIDTH, VOCAB = 3, 5
DESIGNS: list[dict[str, Any]] = [
    {}, {"q": "none"}, {"q": "utterance", "double_q": False}, {"v": False, "separate_policy": False}, {"q": "mean"},
    {"v": False, "double_q": False, "separate_target": False}, {"residual": True, "double_q": False}, {"prefix": True},
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
        found = agent.look(params, TOKENS, VALID, jnp.array([0.5, -2.0]))
        shown = jax.tree_util.tree_leaves_with_path((fresh, found))
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
