"""The texts of a scorer of comments: how they are cut, and the length of its training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from motif_jax.ilql.tasks.reddit.text_scorer import DESCRIPTION, encoded, longest_text
from motif_jax.lm.tokens import Tokenizer
from tests.lm import characters

ROOM = 38  # positions of the model


@pytest.mark.parametrize(
    ("longest", "scored_text"), [(None, "abcd"), (5, "abcd"), (4, "abc"), (3, "ab")]
)
def test_a_cut_text_keeps_its_end_token(
    tmp_path: Path, longest: int | None, scored_text: str
) -> None:
    tokenizer = Tokenizer.read(characters.write(tmp_path))

    rows = encoded(tokenizer, ["abcd", "a"], longest)

    assert rows == [
        [*characters.numbers(scored_text), characters.END],
        [*characters.numbers("a"), characters.END],
    ]


@pytest.mark.parametrize("room", [ROOM, None])
def test_a_folder_without_a_length_uses_the_models_maximum(
    tmp_path: Path, room: int | None
) -> None:
    assert longest_text(tmp_path, room) == room


@pytest.mark.parametrize("room", [ROOM, None])
@pytest.mark.parametrize("longest", [3, ROOM])
def test_the_longest_text_is_that_of_the_training(
    tmp_path: Path, longest: int, room: int | None
) -> None:
    (tmp_path / DESCRIPTION).write_text(json.dumps({"max_len": longest}))

    assert longest_text(tmp_path, room) == longest
