"""Positions and caches against plain numpy and tables by hand."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import caches
from motif_jax.lm.attention import Keys, attend, causal, mask_bias, relative_buckets, rotate, rotation
from motif_jax.lm.layer_positions import Rotary
from motif_jax.lm.layers import KeyValues
from motif_jax.lm.model import Cache

KEPT = 10 * 100 ** (-1 / 3) / (2 * np.pi) - 0.2


@pytest.mark.parametrize(
    ("rotary", "factors"),
    [
        (Rotary(100.0), (1, 1, 1)),
        (Rotary(100.0, "linear", 4.0), (0.25, 0.25, 0.25)),
        # Within 10 positions the three pairs turn 1.59, KEPT + 0.2 = 0.34, and 0.07 times.
        (Rotary(100.0, "llama3", 4.0, 0.2, 1.2, 10), (1, KEPT + (1 - KEPT) / 4, 0.25)),
    ],
)
def test_positions_turn_pairs_of_numbers(rotary: Rotary, factors: tuple[float, ...]) -> None:
    x = np.random.default_rng(1).normal(size=(1, 1, 2, 1, 6))
    positions = np.array([[[1, 7]]])
    rotated = rotate(jnp.asarray(x), rotation(jnp.asarray(positions), rotary, 6))
    angles = positions[0, 0][:, None] * np.array(factors) * 100.0 ** -(np.arange(3) / 3)
    numbers = (x[0, 0, :, 0, :3] + 1j * x[0, 0, :, 0, 3:]) * np.exp(1j * angles)
    expected = np.concatenate([numbers.real, numbers.imag], axis=-1)
    np.testing.assert_allclose(rotated[0, 0, :, 0], expected, atol=1e-5)


def test_buckets_are_exact_when_near_and_logarithmic_behind() -> None:
    query = jnp.array([20])
    key = jnp.arange(41)
    back = [0, 1, 2, 3, 4, 4, 5, 5, *[6] * 4, *[7] * 9]  # of 0 to 20 tokens back
    buckets = relative_buckets(query, key, 8, 16, both_ways=False)[0].tolist()
    assert buckets == [*back[::-1], *[0] * 20]
    near = [0, 1, 2, 2, 2, 2, *[3] * 15]
    buckets = relative_buckets(query, key, 8, 16, both_ways=True)[0].tolist()
    assert buckets == [*near[::-1], *(4 + bucket for bucket in near[1:])]


def cache(valid: list[list[str]], first: int) -> Cache:
    """A cache of texts that are given as strings of 0 and 1; its keys are numbers from `first` on."""
    is_valid = np.array([[[mark == "1" for mark in text] for text in row] for row in valid])
    keys = first + np.arange(is_valid.size, dtype=np.float32).reshape(*is_valid.shape[:2], 1, -1, 1)
    return Cache(
        (KeyValues(jnp.asarray(keys), -jnp.asarray(keys)),),
        jnp.asarray(is_valid), jnp.int32(is_valid.shape[2]), jnp.asarray(is_valid.sum(axis=2), jnp.int32),
    )  # fmt: skip


def shown(text_cache: Cache) -> list[list[list[float]]]:
    """The keys of the valid slots of each text; values are their negatives."""
    (layer,) = text_cache.keys
    np.testing.assert_array_equal(layer.values, -layer.keys)
    np.testing.assert_array_equal(text_cache.written, text_cache.valid.sum(axis=2))
    keys = np.asarray(layer.keys[:, :, 0, :, 0])
    valid = np.asarray(text_cache.valid)
    return [[numbers[slots].tolist() for numbers, slots in zip(*row)] for row in zip(keys, valid)]


def test_caches_grow_shrink_and_change_places() -> None:
    one = cache([["10100"], ["01100"]], 0)._replace(slot=jnp.int32(3))
    more = cache([["10"], ["11"]], 10)
    other = cache([["01"], ["11"]], 20)
    grown = caches.grown(one, more)
    both = caches.beside(more, other)
    squeezed = caches.squeezed(grown, 6)
    picked = caches.picked(both, jnp.array([[1, 1], [0, 1]]))
    short = caches.shortened(grown, jnp.array([1, 3]))
    second = caches.rows_of(grown, jnp.array([1]))
    assert [shown(text_cache) for text_cache in (grown, short, squeezed, second, both, picked)] == [
        [[[0, 2, 10]], [[6, 7, 12, 13]]],
        [[[0]], [[6, 7, 12]]],
        [[[0, 2, 10]], [[6, 7, 12, 13]]],
        [[[6, 7, 12, 13]]],
        [[[10], [21]], [[12, 13], [22, 23]]],
        [[[21], [21]], [[12, 13], [22, 23]]],
    ]
    assert (grown.slot, squeezed.slot, squeezed.keys[0].keys.shape[3]) == (5, 4, 6)
    assert squeezed.valid.tolist() == [[[True] * 3 + [False] * 3], [[True] * 4 + [False] * 2]]
    prompt = caches.as_prompt(picked)
    assert prompt.length.tolist() == [1, 2]
    assert prompt.keys[0].keys[:, 0, :, 0].tolist() == [[20, 21], [12, 13]]


@pytest.mark.slow
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_a_head_attends_to_the_shared_and_its_own_keys_with_one_softmax(key_heads: int) -> None:
    draws = np.random.default_rng(0)
    batch, branches, tokens, heads, width, shared_tokens = 2, 3, 4, 4, 5, 6
    query = draws.normal(size=(batch, branches, tokens, heads, width)).astype(np.float32)
    shared = draws.normal(size=(2, batch, key_heads, shared_tokens, width)).astype(np.float32)
    own = draws.normal(size=(2, batch, branches, key_heads, tokens, width)).astype(np.float32)
    no_bias = jnp.zeros((1, 1, 1, 1, shared_tokens))
    segments = [
        Keys(*map(jnp.asarray, shared), no_bias),
        Keys(*map(jnp.asarray, own), mask_bias(causal(tokens))),
    ]

    values = attend(jnp.asarray(query), segments, 0.5, lambda weights: weights)

    for row, branch, token, head in np.ndindex(batch, branches, tokens, heads):
        group = head * key_heads // heads
        keys = np.concatenate([shared[0, row, group], own[0, row, branch, group, : token + 1]])
        contents = np.concatenate([shared[1, row, group], own[1, row, branch, group, : token + 1]])
        weights = np.exp(0.5 * keys @ query[row, branch, token, head])
        expected = weights @ contents / weights.sum()
        np.testing.assert_allclose(values[row, branch, token, head], expected, atol=1e-5)
