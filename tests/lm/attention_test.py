"""Positions and caches against plain numpy and tables by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motif_jax.lm import generation
from motif_jax.lm.attention import (
    Keys,
    attend,
    causal,
    mask_bias,
    query_blocks,
    relative_buckets,
    rotate,
    rotation,
)
from motif_jax.lm.config import Rotary
from motif_jax.lm.layers import KeyValues
from motif_jax.lm.model import Cache
from tests.sets import extra

KEPT = 10 * 100 ** (-1 / 3) / (2 * np.pi) - 0.2


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("rotary", "factors"),
    [
        (Rotary(100.0), (1, 1, 1)),
        (Rotary(100.0, "linear", 4.0), (0.25, 0.25, 0.25)),
        # Within 10 positions the three pairs turn 1.59, KEPT + 0.2 = 0.34, and 0.07 times.
        (Rotary(100.0, "llama3", 4.0, 0.2, 1.2, 10), (1, KEPT + (1 - KEPT) / 4, 0.25)),
    ],
)
def test_positions_turn_pairs_of_numbers(
    rotary: Rotary, factors: tuple[float, ...], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
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
    """A cache of texts that are given as strings of 0 and 1; its keys are numbers from `first`
    on.
    """
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
    grown = generation.grown(one, more)
    both = generation.join_continuations(more, other)
    squeezed = generation.squeezed(grown, 6)
    picked = generation.picked(both, jnp.array([[1, 1], [0, 1]]))
    short = generation.shortened(grown, jnp.array([1, 3]))
    second = generation.rows_of(grown, jnp.array([1]))
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
    prompt = generation.as_prompt(picked)
    assert prompt.length.tolist() == [1, 2]
    assert prompt.keys[0].keys[:, 0, :, 0].tolist() == [[20, 21], [12, 13]]


def arrays(key_heads: int, tokens: int) -> tuple[jax.Array, list[Keys]]:
    """Queries, the keys of a prefix, and those of its continuations, of which later ones are
    hidden.
    """
    draws = np.random.default_rng(0)
    batch, branches, heads, width, prefix_tokens = 2, 3, 4, 5, 6
    query = draws.normal(size=(batch, branches, tokens, heads, width)).astype(np.float32)
    prefix = draws.normal(size=(2, batch, key_heads, prefix_tokens, width)).astype(np.float32)
    continuations = draws.normal(size=(2, batch, branches, key_heads, tokens, width)).astype(
        np.float32
    )
    no_bias = jnp.zeros((1, 1, 1, 1, prefix_tokens))
    return jnp.asarray(query), [
        Keys(jnp.asarray(prefix[0]), jnp.asarray(prefix[1]), no_bias),
        Keys(
            jnp.asarray(continuations[0]),
            jnp.asarray(continuations[1]),
            mask_bias(causal(tokens)),
            causal=True,
        ),
    ]


def by_numpy(query: jax.Array, segments: list[Keys], scale: float) -> np.ndarray:
    """Attention in float64, a head after the other, of keys that are causal in the second
    segment.
    """
    prefix, continuations = segments
    prefix_keys = np.asarray(prefix.keys, np.float64)
    prefix_values = np.asarray(prefix.values, np.float64)
    branch_keys = np.asarray(continuations.keys, np.float64)
    branch_values = np.asarray(continuations.values, np.float64)
    batch, branches, tokens, heads, _ = query.shape
    key_heads = branch_keys.shape[2]
    values = np.zeros(query.shape)
    for row, branch, token, head in np.ndindex(batch, branches, tokens, heads):
        group = head * key_heads // heads
        keys = np.concatenate(
            [prefix_keys[row, group], branch_keys[row, branch, group, : token + 1]]
        )
        contents = np.concatenate(
            [prefix_values[row, group], branch_values[row, branch, group, : token + 1]]
        )
        weights = np.exp(scale * keys @ np.asarray(query[row, branch, token, head], np.float64))
        values[row, branch, token, head] = weights @ contents / weights.sum()
    return values


@pytest.mark.slow
@pytest.mark.parametrize(("key_heads", "tokens"), [extra(1, 4), (2, 4), extra(4, 4), (2, 150)])
def test_a_head_has_one_softmax_over_shared_and_private_keys(key_heads: int, tokens: int) -> None:
    query, segments = arrays(key_heads, tokens)

    values = attend(query, segments, 0.5)

    np.testing.assert_allclose(values, by_numpy(query, segments, 0.5), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "tokens"), [("cpu", 3), extra("cpu", 40), extra("gpu", 3), ("gpu", 40)]
)
@pytest.mark.parametrize("shared_axes", ["B", "H", "NS", "BNHS"])
@pytest.mark.parametrize("branch_axes", ["", "BN", "HS", "BNHS"])
def test_biases_of_any_axes_are_added_to_the_scores(
    shared_axes: str, branch_axes: str, tokens: int, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    query, (prefix, continuations) = arrays(2, tokens)
    sizes = dict(zip("BNHS", (2, 3, 4, tokens), strict=True))
    draws = np.random.default_rng(3)

    def bias(axes: str, keys: int) -> np.ndarray:
        shape = [sizes[axis] if axis in axes else 1 for axis in "BNHS"]
        return draws.normal(size=(*shape, keys)).astype(np.float32)

    biases = [bias(shared_axes, 6), bias(branch_axes, tokens)]
    segments = [prefix._replace(bias=jnp.asarray(biases[0]))]
    segments.append(continuations._replace(bias=jnp.asarray(biases[1]), causal=False))

    values = attend(query, segments, 0.5)

    # Two heads look at each of the two matrices of keys.
    keys = [np.repeat(segment.keys, 2, axis=-3) for segment in segments]
    contents = [np.repeat(segment.values, 2, axis=-3) for segment in segments]
    scores = np.concatenate(
        [
            0.5 * np.einsum("bnshd,bhkd->bnhsk", query, keys[0]) + biases[0],
            0.5 * np.einsum("bnshd,bnhkd->bnhsk", query, keys[1]) + biases[1],
        ],
        axis=-1,
    )
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    expected = np.einsum("bnhsk,bhkd->bnshd", weights[..., :6], contents[0])
    expected += np.einsum("bnhsk,bnhkd->bnshd", weights[..., 6:], contents[1])
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_blocks_cover_all_queries_and_a_gpu_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (0, 1, 63, 64, 127, 128, 150, 360, 5000):
        blocks = query_blocks(length)
        assert blocks[0][0] == 0
        assert blocks[-1][1] == length
        assert [stop for _, stop in blocks[:-1]] == [start for start, _ in blocks[1:]]
        assert len(blocks) <= 4
        assert len(blocks) == 1 or min(stop - start for start, stop in blocks) >= 64
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert query_blocks(5000) == [(0, 5000)]


@pytest.mark.slow
def test_keys_behind_a_block_are_not_read() -> None:
    query, segments = arrays(2, 150)
    prefix, continuations = segments
    (_, end), *_ = query_blocks(150)
    broken = continuations._replace(values=continuations.values.at[..., end:, :].set(jnp.nan))

    values = attend(query, [prefix, broken], 0.5)

    assert np.isfinite(values[:, :, :end]).all()
    assert np.isnan(values[:, :, end:]).all()


@pytest.mark.slow
def test_dropout_of_weights_is_drawn_once_for_all_pairs() -> None:
    query, segments = arrays(2, 150)
    scales = np.random.default_rng(1).uniform(size=(2, 2, 3, 2, 150, 6 + 150)).astype(np.float32)
    scales = np.where(scales < 0.5, 0, scales)

    def drop(weights: jax.Array) -> jax.Array:
        return weights * scales

    @jax.jit
    def of_head(query: jax.Array, mask: np.ndarray) -> jax.Array:
        """The output of the last token's first head where values of keys outside `mask` are
        zero.
        """
        masks = jnp.split(mask[:, None], [6])
        masked_segments = [
            segment._replace(values=segment.values * part)
            for segment, part in zip(segments, masks, strict=True)
        ]
        return attend(query, masked_segments, 0.5, drop)[0, 0, -1, 0]

    undropped = attend(query, segments, 0.5)[0, 0, -1, 0]
    assert np.abs(of_head(query, np.ones(156, bool)) - undropped).max() > 1e-3
    for key in (2, 9, 140):
        values = segments[0].values[0, 0, key] if key < 6 else segments[1].values[0, 0, 0, key - 6]
        keys = np.concatenate([segments[0].keys[0, 0], segments[1].keys[0, 0, 0]])
        weights = np.exp(0.5 * keys @ np.asarray(query[0, 0, -1, 0]))
        expected = weights[key] / weights.sum() * scales[0, 0, 0, 0, -1, key] * values
        np.testing.assert_allclose(of_head(query, np.arange(156) == key), expected, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_shared_keys_are_added_in_float32() -> None:
    query, segments = arrays(2, 40)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=query.shape), jnp.float32)

    def loss(keys: jax.Array, dtype: str) -> jax.Array:
        parts = [
            Keys(segment.keys.astype(dtype), segment.values.astype(dtype), *segment[2:])
            for segment in [segments[0]._replace(keys=keys), segments[1]]
        ]
        return jnp.sum(attend(query.astype(dtype), parts, 0.5).astype(jnp.float32) * weights)

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    exact = gradient(segments[0].keys, "float32")
    rounded = gradient(segments[0].keys, "bfloat16")
    # Three branches are added; the error is that of the rounded inputs.
    assert np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.slow
def test_gradients_are_those_of_all_queries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    query, segments = arrays(2, 150)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=query.shape), jnp.float32)

    def loss(
        query: jax.Array, numbers: list[tuple[jax.Array, jax.Array]], in_blocks: bool
    ) -> jax.Array:
        parts = [Keys(*pair, *segment[2:]) for pair, segment in zip(numbers, segments, strict=True)]
        drop = None if in_blocks else lambda weights: weights
        return jnp.sum(attend(query, parts, 0.5, drop) * weights)

    numbers = [segment[:2] for segment in segments]
    gradients = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    in_blocks = gradients(query, numbers, True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    at_once = gradients(query, numbers, False)
    for blocked, joint in zip(jax.tree.leaves(in_blocks), jax.tree.leaves(at_once), strict=True):
        np.testing.assert_allclose(blocked, joint, atol=2e-5)
