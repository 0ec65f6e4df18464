"""Keys of dropout: a share is left out at places that have nothing to do with each other."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.language import dropout


def test_a_share_is_left_out_whatever_the_key_was_made_of() -> None:
    key = dropout.key(3)
    keys = [key, dropout.key(4), jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)]
    keys += [jax.random.fold_in(jax.random.fold_in(key, 0), 1), *jax.random.split(key, 2)]
    there, *others = masks = [np.asarray(jax.random.bernoulli(each, 0.9, (400, 500))) for each in keys]
    for each in masks:
        assert abs(each.mean() - 0.9) < 0.005
        assert np.abs(each.mean(axis=0) - 0.9).max() < 0.15
    pairs = [(there[1:], there[:-1]), (there[:, 1:], there[:, :-1])]
    for a, b in [*pairs, *((there, other) for other in others)]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015


def test_it_is_a_function_of_key_and_place_under_any_transformation() -> None:
    keys = jax.random.split(dropout.key(1), 3)
    kept = functools.partial(jax.random.bernoulli, p=0.6, shape=(5, 7))
    each = [kept(key) for key in keys]
    np.testing.assert_array_equal(jax.vmap(kept)(keys), jnp.stack(each))
    np.testing.assert_array_equal(jax.jit(kept)(keys[0]), each[0])


def test_bits_stay_what_they_were() -> None:
    """Runs go on with the masks that they would have had."""
    key = dropout.key(5)
    keys = [key, jax.random.fold_in(key, 7), jax.random.split(key, 2)[1]]
    found = [jax.random.bits(each, (2,)).tolist() for each in keys]
    assert found == [[89382631, 4178211215], [3050097796, 2429612], [331787753, 4282494192]]


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_numbers_of_any_width_use_all_of_it(width: int) -> None:
    with jax.enable_x64(True):
        bits = np.asarray(jax.random.bits(dropout.key(5), (2000,), f"uint{width}"))
    assert bits.dtype == f"uint{width}"
    shares = [np.mean(bits >> np.asarray(place, bits.dtype) & 1) for place in range(width)]
    np.testing.assert_allclose(shares, 0.5, atol=0.07)
    assert len(np.unique(bits)) > {8: 200, 16: 1900}.get(width, 1999)
