"""The guard of an update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.training.finite import all_finite, keep_if, named_leaves, update_if


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_detected(bad):
    half, key = jnp.ones(2, jnp.bfloat16), jax.random.key(0)
    params = {"w": jnp.ones((3, 4)), "half": half, "n": jnp.arange(3), "k": key}
    check = jax.jit(all_finite)
    assert check(params)
    assert check((params, {"loss": jnp.float32(3e38)}))
    assert not check(params | {"w": params["w"].at[2, 1].set(bad)})
    assert not check(params | {"half": jnp.array([1, bad], jnp.bfloat16)})
    assert not all_finite(params, jnp.float32(bad))
    assert all_finite(jnp.arange(3), {})


def test_an_update_that_is_not_finite_leaves_the_old_values():
    new, old = {"w": jnp.full(3, jnp.nan), "n": jnp.int32(5)}, {"w": jnp.ones(3), "n": jnp.int32(4)}
    params = jax.jit(keep_if)(all_finite(new), new, old)
    assert (params["w"].tolist(), params["n"], params["n"].dtype) == ([1, 1, 1], 4, jnp.int32)
    assert keep_if(jnp.array(True), new, old)["n"] == 5
    keys = keep_if(jnp.array(False), jax.random.key(1), jax.random.key(0))
    assert jax.random.key_data(keys).tolist() == [0, 0]


def test_leaves_have_names():
    assert named_leaves({"a": [1, {"b": 2}]}) == {"a/0": 1, "a/1/b": 2}


def test_the_check_of_an_update_is_computed_once_for_all_leaves():
    """Compiling took a time that grew with the square of the number of leaves."""
    count = 30
    new, old = [jnp.ones(3)] * count, [jnp.zeros(3)] * count
    program = jax.jit(lambda new, old: keep_if(all_finite(new), new, old)).lower(new, old).compile()
    assert count <= program.as_text().count(" is-finite(") <= 2 * count
    assert sum(" and(" in line for line in program.as_text().splitlines()) <= 3 * count


def test_a_chain_of_updates_reuses_the_memory_of_old_values():
    """A moment, the parameters, a target: each reads what the one before wrote."""

    def train(state, gradient):
        moment, params, target = state
        applies = all_finite(gradient)
        moment = update_if(applies, lambda old, new: 0.9 * old + 0.1 * new, moment, gradient)
        params = update_if(applies, lambda old, moment: old - moment, params, moment)
        return moment, params, update_if(applies, lambda old, new: old + 0.5 * (new - old), target, params)

    size = 1 << 16
    state, gradient = tuple(jnp.full(size, value) for value in (1.0, 2.0, 3.0)), jnp.full(size, 2.0)
    program = jax.jit(train, donate_argnums=0).lower(state, gradient).compile()
    assert program.memory_analysis().temp_size_in_bytes < 4 * size
    bad = jax.jit(train)(state, gradient.at[7].set(jnp.nan))
    assert [set(leaf.tolist()) for leaf in bad] == [{1.0}, {2.0}, {3.0}]
    updated = jax.jit(train)(state, gradient)
    np.testing.assert_allclose([leaf[0] for leaf in updated], [1.1, 0.9, 1.95], rtol=1e-6)
