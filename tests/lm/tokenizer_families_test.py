"""Scores are the same alone and in a mixed batch, whatever family the tokenizer is of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from motif_jax import lm as language
from motif_jax.lm import config
from motif_jax.lm.model import LanguageModel
from motif_jax.lm.tokens import Tokenizer
from tests.lm import recipes, tokenizer_families
from tests.lm.tokenizer_families import FAMILIES
from tests.sets import extra

OTHER_FAMILIES = [family for family in FAMILIES if family != "byte-level byte pairs"]
PROMPTS = ["go to the red ball, then turn left and pick up the key", "the door is", "go"]
# With the blank by which a decoder's prompt goes on: "go" and "forward" would be one word.
ACTIONS = [
    [" turn left", " go forward", " open"],
    [" open", " turn right"],
    [" forward", " to the red ball", " left"],
]


@pytest.fixture(scope="module")
def model() -> Callable[[str, str], language.TextModel]:
    """A model with random weights for a tokenizer of the family."""

    def make(family: str, architecture: str) -> language.TextModel:
        tokenizer = Tokenizer(FAMILIES[family]())
        settings = config.parse(recipes.CONFIGS[architecture])
        network = LanguageModel(
            dataclasses.replace(settings, vocab_size=340, max_length=96, layers=1)
        )
        params: Any = network.init(jax.random.key(0))
        return language.TextModel(network, params, tokenizer, batch=4)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        ("byte-level byte pairs", "gpt2"),
        extra("unigram", "t5"),
        *(extra(family, "gpt2") for family in OTHER_FAMILIES),
    ],
)
def test_scores_are_the_same_alone_and_in_a_mixed_batch(
    model: Callable[[str, str], language.TextModel], family: str, architecture: str
) -> None:
    family_model = model(family, architecture)
    joint = family_model.score(PROMPTS, ACTIONS)
    alone = [
        family_model.score([prompt], names)[0]
        for prompt, names in zip(PROMPTS, ACTIONS, strict=True)
    ]
    for one, other in zip(joint, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_of_the_family_are_read_back(family: str) -> None:
    tokenizer = Tokenizer(FAMILIES[family]())
    for text in tokenizer_families.TEXTS:
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_keep_the_blanks_between_words(family: str) -> None:
    tokenizer = Tokenizer(FAMILIES[family]())
    text = "the door is open"

    pieces = tokenizer.pieces(tokenizer.encode([text], special=False)[0])

    # A tokenizer with marks for blanks puts one before the first word, too.
    assert "".join(pieces).removeprefix(" ") == text


def test_text_that_spells_the_beginning_has_it_once() -> None:
    tokenizer = Tokenizer(FAMILIES["byte pairs with marks for blanks"]())
    begun, plain = tokenizer.encode(["<s>go", "go"])
    assert (begun.count(1), plain.count(1)) == (1, 1)
    assert begun[0] == plain[0] == 1


def test_beginning_that_only_the_text_has_stays() -> None:
    tokenizer = Tokenizer(FAMILIES["byte pairs with marks for blanks"]())
    assert tokenizer.encode(["<s><s>go"], special=False)[0][:2] == [1, 1]
