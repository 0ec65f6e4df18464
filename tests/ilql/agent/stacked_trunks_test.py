"""Three trunks as one program, stacked or one after the other, as each by itself."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.ilql.agent.text_session import DecodeState, StackedModels
from tests.lm import recipes

TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))
GOOD = jnp.asarray(np.array([[[1, 1], [1, 1]], [[1, 0], [1, 1]], [[1, 1], [0, 0]]], bool))


def run(stacked: StackedModels, embeddings: jax.Array, trees: list[Any]) -> DecodeState:
    """Texts are read, shortened, continued in several ways, of which one is chosen, and read on."""
    params = stacked.join(trees)
    text = DecodeState.start(stacked, params, 3, 10)
    text = text.extend(stacked, params, None, TOKENS[:, None], VALID[:, None])
    text = text.shorten(jnp.array([4, 9, 2])).squeeze(16)
    branches = text.branch(stacked, params, 2, 2)
    branches = branches.extend(stacked, params, text.prompt(), None, GOOD, embeddings)
    both = branches.join_continuations(branches.pick(jnp.array([[1, 0], [1, 1], [0, 1]])))
    text = text.grow(both.pick(jnp.array([[3], [0], [1]]))).rows(jnp.array([2, 0]))
    return text.extend(stacked, params, None, TOKENS[:2, None, :1], jnp.ones((2, 1, 1), bool))


@pytest.mark.extra
def test_stacked_trunks_give_what_they_give_one_after_the_other(loaded: Any) -> None:
    model, params = loaded("gpt2")
    trees = [jax.tree.map(lambda x, s=scale: x * s, params) for scale in (1.0, 1.2, 0.8)]  # type: ignore[misc]
    embeddings = jax.random.normal(jax.random.key(0), (3, 3, 2, 2, model.config.width))
    stacked, apart = (
        jax.jit(functools.partial(run, StackedModels(model, joint)))(embeddings, trees)
        for joint in (True, False)
    )
    for leaf, expected in zip(
        jax.tree.leaves(stacked[1:]), jax.tree.leaves(apart[1:]), strict=True
    ):
        np.testing.assert_allclose(
            leaf, expected, atol=1e-5 * float(jnp.abs(expected).max()), rtol=0
        )
    np.testing.assert_array_equal(stacked.cache.valid, apart.cache.valid)
    np.testing.assert_array_equal(stacked.cache.written, [[2 + 0 + 1], [4 + 2 + 1]])
