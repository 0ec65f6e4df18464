"""Texts that end a continuation: as tokens, which the loop sees, and as texts of several tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax import lm as language
from motif_jax.lm import text
from motif_jax.lm.tokens import Tokenizer
from tests.lm import tokenizer_families
from tests.lm.models import TEXT


@pytest.fixture(scope="module")
def model(worded: Path) -> language.TextModel:
    return language.load(worded, batch=4)


@pytest.mark.slow
def test_a_text_ends_before_what_stops_it(model: language.TextModel) -> None:
    texts = [text for (text,) in model.generate(TEXT, max_new_tokens=20)]
    # Words within the texts, of several tokens.
    words = [text[5:9] for text in texts]
    assert not any(map(model.tokenizer.find, words))
    cut = model.generate(TEXT, max_new_tokens=20, stops=words)
    for full, (part,) in zip(texts, cut, strict=True):
        assert part == full[: min(position for stop in words if (position := full.find(stop)) >= 0)]
        assert len(part) < len(full)


@pytest.mark.extra
def test_a_beam_ends_at_a_token_that_bytes_name_otherwise(model: language.TextModel) -> None:
    """Beams that go on behind a stop are the same text once it is cut off."""
    assert model.tokenizer.find(" the") is None

    (beams,) = model.generate(["turn"], max_new_tokens=12, search=True, count=4, stops=[" the"])

    assert len(set(beams)) == 4
    assert not any(" the" in text for text in beams)


def test_a_stop_named_like_a_byte_is_no_token(model: language.TextModel) -> None:
    # A tokenizer of bytes names the blank so, and the letter itself has two bytes.
    blank = "\u0120"
    tokenizer = model.tokenizer
    assert tokenizer.find(blank) is not None

    tokens = text.stop_tokens(tokenizer, ["</s>", blank, "no such token"])

    assert tokens == (tokenizer.find("</s>"),)


def test_a_stop_of_bytes_is_known_by_its_decoded_text(model: language.TextModel) -> None:
    tokens = text.stop_tokens(model.tokenizer, [" the"])

    assert [model.tokenizer.decode([token]) for token in tokens] == [" the"]


def test_a_word_that_begins_with_a_stop_ends_no_text() -> None:
    """Decoders drop the blank of a text's first word: the stop would not be in it."""
    tokenizer = Tokenizer(tokenizer_families.unigram())

    assert text.stop_tokens(tokenizer, [" t", " "]) == ()
