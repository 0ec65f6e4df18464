"""Texts fill a model to its last position, and no further."""

from __future__ import annotations

from typing import Any

import pytest

from motif_jax.language import config, prompt_length
from motif_jax.support.errors import UserError
from tests.language import recipes


class Letters:
    """A token for each letter."""

    @staticmethod
    def encode(texts: list[str], special: bool = True) -> list[list[int]]:
        return [[*map(ord, text)] for text in texts]


SETTINGS, LETTERS = config.parse({**recipes.CONFIGS["gpt2"], "n_positions": 9}), Letters()
T5: Any = config.parse(recipes.CONFIGS["t5"])
TOO_LONG = r"^a prompt of {} tokens \('{}'\.\.\.\) and {} more do not fit a model of 9 positions$"


def test_a_prompt_has_the_room_that_its_longest_candidate_leaves() -> None:
    require: Any = prompt_length.require
    assert (prompt_length.prompt_room(SETTINGS, 4), prompt_length.prompt_room(T5, 4)) == (5, None)
    require(LETTERS, SETTINGS, ["abc", "abcde"], [["a", "wxyz"], ["wxy"]])
    require(LETTERS, SETTINGS, ["abcdefghi"])
    require(LETTERS, T5, ["abcdefghi" * 9], most=90)
    for given, said in (
        ((["abc", "abcdef"], [["a"], ["wxyz"]]), TOO_LONG.format(6, "abcdef", 4)),
        ((["abcdefghij"],), TOO_LONG.format(10, "abcdefghij", 0)),
        ((["abcdefgh"], None, 2), TOO_LONG.format(8, "abcdefgh", 2)),
        ((["0123456789" * 5],), TOO_LONG.format(50, "0123456789" * 4, 0)),
        ((["a", ""],), "^text '' has no tokens$"),
    ):
        with pytest.raises(UserError, match=said):
            require(LETTERS, SETTINGS, *given)


def test_candidates_are_for_all_prompts_or_for_each() -> None:
    assert prompt_length.each_prompts(["p", "q"], ["a", "b"]) == [("a", "b")] * 2
    assert prompt_length.each_prompts(["p", "q"], [["a"], ["b", "c"]]) == [("a",), ("b", "c")]
    said = "^2 lists of candidates for 1 prompts: one for each, or one for all$"
    with pytest.raises(UserError, match=said):
        prompt_length.each_prompts(["p"], [["a"], ["b"]])
