"""Three trunks as one program, stacked or one after the other, as each by itself."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language.decode_state import DecodeState
from motif_jax.language.network import States
from motif_jax.language.stacked_trunks import StackedModels, TrunkRoles
from tests.language import recipes

TOKENS = jnp.asarray(recipes.tokens(), jnp.int32)
VALID = jnp.asarray(recipes.mask("left"))
GOOD = jnp.ones((3, 2, 2), bool).at[1, 0, 1].set(False).at[2, 1].set(False)


def run(stacked: StackedModels, embeddings: jax.Array, trees: list[Any]) -> DecodeState:
    """Texts are read, shortened, continued in several ways, of which one is chosen, and read on."""
    params = stacked.join(trees)
    text = DecodeState.start(stacked, params, 3, 10)
    text = text.extend(stacked, params, None, TOKENS[:, None], VALID[:, None])
    text = text.shorten(jnp.array([4, 9, 2])).squeeze(16)
    branches = text.branch(stacked, params, 2, 2)
    branches = branches.extend(stacked, params, text.prompt(), None, GOOD, embeddings)
    both = branches.beside(branches.pick(jnp.array([[1, 0], [1, 1], [0, 1]])))
    text = text.grow(both.pick(jnp.array([[3], [0], [1]]))).rows(jnp.array([2, 0]))
    return text.extend(stacked, params, None, TOKENS[:2, None, :1], jnp.ones((2, 1, 1), bool))


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_trunks_give_what_each_gives_by_itself(loaded: Any, together: bool) -> None:
    model, params = loaded("gpt2")
    trees = [jax.tree.map(lambda x, s=scale: x * s, params) for scale in (1.0, 1.2, 0.8)]  # type: ignore[misc]
    embeddings = jax.random.normal(jax.random.key(0), (3, 3, 2, 2, model.config.width))
    found = jax.jit(functools.partial(run, StackedModels(model, together)))(embeddings, trees)
    alone = jax.jit(functools.partial(run, StackedModels(model, False)))
    apart = [alone(embeddings[i : i + 1], [tree]) for i, tree in enumerate(trees)]
    for leaf, *parts in zip(
        *(jax.tree.leaves((state.last, state.total)) for state in (found, *apart)), strict=True
    ):
        expected = jnp.concatenate(parts)
        np.testing.assert_allclose(leaf, expected, atol=1e-5 * float(jnp.abs(expected).max()), rtol=0)
    np.testing.assert_array_equal(found.cache.valid, apart[0].cache.valid)
    np.testing.assert_array_equal(found.cache.written, [[2 + 0 + 1], [4 + 2 + 1]])


def test_a_trunk_of_several_parts_is_run_once() -> None:
    roles = TrunkRoles({"policy": "policy", "values": "target", "target": "target"})
    assert roles.trunks == ("policy", "target")
    assert roles.trees({"target": 2, "policy": 1}) == [1, 2]
    assert roles.of("values", States(jnp.array([1, 2]), jnp.array([3, 4]))) == States(2, 4)  # type: ignore[arg-type]
