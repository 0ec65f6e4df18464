"""The guard of an update."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.core.training.finite import all_finite, keep_if, named_leaves, update_if

FINITE_TREE = {
    "w": jnp.ones((3, 4)),
    "half": jnp.ones(2, jnp.bfloat16),
    "n": jnp.arange(3),
    "key": jax.random.key(0),
}


def test_trees_of_finite_numbers_are_finite():
    assert jax.jit(all_finite)(FINITE_TREE)
    assert jax.jit(all_finite)((FINITE_TREE, {"loss": jnp.float32(3e38)}))
    assert all_finite(jnp.arange(3), {})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_one_number_among_many_makes_a_tree_not_finite(number):
    check = jax.jit(all_finite)

    assert not check(FINITE_TREE | {"w": FINITE_TREE["w"].at[2, 1].set(number)})
    assert not check(FINITE_TREE | {"half": jnp.array([1, number], jnp.bfloat16)})
    assert not all_finite(FINITE_TREE, jnp.float32(number))


OLD = {"w": jnp.ones(3), "n": jnp.int32(4)}
NEW = {"w": jnp.full(3, jnp.nan), "n": jnp.int32(5)}


def test_the_old_tree_stays_unless_the_new_is_finite():
    tree = jax.jit(keep_if)(all_finite(NEW), NEW, OLD)

    assert tree["w"].tolist() == [1, 1, 1]
    assert tree["n"] == 4
    assert tree["n"].dtype == jnp.int32


def test_the_new_tree_replaces_the_old_one_if_it_may():
    assert keep_if(jnp.array(True), NEW, OLD)["n"] == 5


def test_random_keys_are_chosen_too():
    key = keep_if(jnp.array(False), jax.random.key(1), jax.random.key(0))

    assert jax.random.key_data(key).tolist() == [0, 0]


def test_leaves_have_names():
    assert named_leaves({"a": [1, {"b": 2}]}) == {"a/0": 1, "a/1/b": 2}


def test_a_guards_program_grows_linearly_with_the_leaves():
    """Else the check of all leaves is fused into the choice of each."""
    count = 30
    new = [jnp.ones(3)] * count
    old = [jnp.zeros(3)] * count

    program = jax.jit(lambda new, old: keep_if(all_finite(new), new, old)).lower(new, old).compile()

    assert count <= program.as_text().count(" is-finite(") <= 2 * count
    assert sum(" and(" in line for line in program.as_text().splitlines()) <= 3 * count


def train(state, gradient):
    """A chain of updates: a moment, the parameters, a target; each reads what the one before
    wrote.
    """
    moment, params, target = state
    applies = all_finite(gradient)
    moment = update_if(applies, lambda old, new: 0.9 * old + 0.1 * new, moment, gradient)
    params = update_if(applies, lambda old, moment: old - moment, params, moment)
    target = update_if(applies, lambda old, new: old + 0.5 * (new - old), target, params)
    return moment, params, target


SIZE = 1 << 16
STATE = jax.device_put(tuple(np.full(SIZE, value, np.float32) for value in (1, 2, 3)))
GRADIENT = jax.device_put(np.full(SIZE, 2, np.float32))


def test_a_chain_of_updates_reuses_the_old_values_memory():
    program = jax.jit(train, donate_argnums=0).lower(STATE, GRADIENT).compile()

    assert program.memory_analysis().temp_size_in_bytes < 4 * SIZE


def test_a_chain_of_updates_by_a_finite_gradient_is_applied():
    moment, params, target = jax.jit(train)(STATE, GRADIENT)

    np.testing.assert_allclose([moment[0], params[0], target[0]], [1.1, 0.9, 1.95], rtol=1e-6)


def test_updates_by_a_gradient_with_nan_change_nothing():
    state = jax.jit(train)(STATE, GRADIENT.at[7].set(jnp.nan))

    chex.assert_trees_all_equal(state, STATE)
