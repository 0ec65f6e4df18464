"""Prompts packed as trees: every prompt stands in one pack, and sees its own tokens alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from motif_jax.lm import next_token

WIDTH = 12
PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=WIDTH), max_size=20)


def visible_places(subtree_ends: np.ndarray, place: int) -> np.ndarray:
    """The places that a token looks at, as `PackArrays.subtree_ends` has it."""
    places = np.arange(len(subtree_ends))
    return np.flatnonzero((places <= place) & (place < subtree_ends))


@given(prompts=PROMPTS, capacity=st.integers(1, 5))
def test_a_token_sees_its_prompts_tokens_up_to_itself(
    prompts: list[list[int]], capacity: int
) -> None:
    packs = next_token.packed(prompts, WIDTH, capacity)
    positions = [position for pack in packs for position in pack.positions]
    assert sorted(positions) == list(range(len(prompts)))
    arrays = next_token.pack_arrays(packs, WIDTH, capacity)
    for number, pack in enumerate(packs):
        for index, position in enumerate(pack.positions):
            visible = visible_places(arrays.subtree_ends[number], arrays.last_places[number, index])
            assert arrays.tokens[number, visible].tolist() == prompts[position]
            assert arrays.depths[number, visible].tolist() == list(range(len(prompts[position])))
            for depth, place in enumerate(visible):
                np.testing.assert_array_equal(
                    visible_places(arrays.subtree_ends[number], place), visible[: depth + 1]
                )


@given(prompts=PROMPTS)
def test_nobody_sees_padding(prompts: list[list[int]]) -> None:
    packs = next_token.packed(prompts, WIDTH, capacity=3)
    arrays = next_token.pack_arrays(packs, WIDTH, capacity=3, pad=7)
    for number, pack in enumerate(packs):
        size = len(pack.tokens)
        assert (arrays.tokens[number, size:] == 7).all()
        assert not arrays.subtree_ends[number, size:].any()
        assert not arrays.last_places[number, len(pack.positions) :].any()


@given(
    prompts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=20)
)
def test_what_prompts_of_a_pack_share_stands_once(prompts: list[list[int]]) -> None:
    (pack,) = next_token.packed(prompts, width=200, capacity=len(prompts))
    beginnings = {
        tuple(prompt[:length]) for prompt in prompts for length in range(1, len(prompt) + 1)
    }
    assert len(pack.tokens) == len(beginnings)
    assert sum(pack.computed) == len(beginnings)


def test_a_prompt_that_does_not_fit_begins_a_new_pack() -> None:
    first, second = next_token.packed([[1, 2, 3], [1, 2, 4], [1, 5]], width=4, capacity=9)
    assert first.tokens == [1, 2, 3, 4]
    assert second.tokens == [1, 5]
    assert second.positions == [2]
