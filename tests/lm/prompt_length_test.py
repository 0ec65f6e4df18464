"""Prompts fit the positions of their model, and candidates differ in their tokens: else a score
would be of something else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax.core.errors import UserError
from motif_jax.lm import text
from motif_jax.lm.tokens import Tokenizer, candidate_rows
from tests.lm.models import parsed


def test_texts_fit_up_to_the_last_position() -> None:
    settings = parsed("gpt2", {"n_positions": 9})

    text.require_prompts(["abcde", "ab"], [[1] * 5, [1] * 2], settings, [4, 7])
    with pytest.raises(UserError, match="do not fit a model of 9 positions"):
        text.require_prompts(["abcde"], [[1] * 5], settings, [5])


@pytest.mark.parametrize("texts", [["a", ""], ["a", "b", "a"]])
def test_candidates_differ_in_their_tokens(worded: Path, texts: list[str]) -> None:
    tokenizer = Tokenizer.read(worded)
    candidate_rows(tokenizer, ["a", "b"])

    with pytest.raises(UserError, match="candidate"):
        candidate_rows(tokenizer, texts)
