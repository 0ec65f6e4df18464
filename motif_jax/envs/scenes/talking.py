"""What is said about pictures: questions understood by their words, answers by rules, and what they tell a guesser."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from motif_jax.envs.scenes.pictures import (
    BLOCKS,
    COLOUR,
    COLOURS,
    GROUP,
    KIND,
    KINDS,
    NUMBER,
    NUMBERS,
    PLACE,
    PLACES,
    SIDE,
    SIDES,
    SIZES,
    Picture,
    block,
    plural,
)
from motif_jax.support import seeds

UNCLEAR = "i can't tell"
# How much of what is expected of an unknown attribute is a favourite.
_LEANING = 0.75
_WORDS = re.compile(r"[a-z]+")
_SINGULAR = {plural(kind, "two"): kind for kind in KINDS}
_COLOUR_WORDS = ("color", "colour", "colors", "colours")
_YES_NO = ("is", "are", "do", "does", "can")


class Question(NamedTuple):
    """A question as it was understood.

    Attributes:
      kind: of the things that it is about; None for the picture as a whole.
      attribute: 'colour', 'number', 'side', 'place', 'kind'.
      value: that is asked about, for yes or no; None for an open question.
    """

    kind: str | None
    attribute: str
    value: str | None


def _singular(text: str) -> list[str]:
    """The words of a text, kinds of things in the singular."""
    return [_SINGULAR.get(word, word) for word in _WORDS.findall(text.lower())]


def _first(words: list[str], listed: tuple[str, ...]) -> str | None:
    return next((word for word in words if word in listed), None)


def understand(text: str) -> Question | None:
    """The question in a text; None where none of the rules knows it."""
    words = _singular(text)
    if not words:
        return None
    kind, yes_no = _first(words, KINDS), words[0] in _YES_NO
    place, colour, number = _first(words, PLACES), _first(words, COLOURS), _first(words, NUMBERS)
    side = _first(words, SIDES)
    if not yes_no:
        return _open(words, kind)
    if place is not None:
        return Question(None, "place", place)
    if kind is None:
        return None
    for attribute, value in (("colour", colour), ("number", number), ("side", side)):
        if value is not None:
            return Question(kind, attribute, value)
    return Question(None, "kind", kind)


def _open(words: list[str], kind: str | None) -> Question | None:
    if "else" in words:
        return Question(None, "kind", None)
    if kind is None:
        return Question(None, "place", None) if "where" in words or "place" in words else None
    if any(word in words for word in _COLOUR_WORDS):
        return Question(kind, "colour", None)
    if "many" in words:
        return Question(kind, "number", None)
    return Question(kind, "side", None) if "where" in words or "side" in words else None


_ATTRIBUTES = {"kind": KIND, "colour": COLOUR, "number": NUMBER, "side": SIDE}


def answer(picture: Picture, text: str, caption: str) -> str:
    """What whoever sees the picture answers.

    Open questions get the value; those for yes or no 'yes' or 'no', about numbers and sides in a sentence; what is not
    understood, and things that are not there, UNCLEAR.
    """
    asked = understand(text)
    if asked is None:
        return UNCLEAR
    kinds = [picture.word(block(group, KIND)) for group in (0, 1)]
    if asked.attribute == "place":
        return _said(picture.word(PLACE), asked, "a ")
    if asked.attribute == "kind":
        if asked.value is not None:
            return "yes" if asked.value in kinds else "no"
        told = _singular(caption)
        return f"a {next((kind for kind in kinds if kind not in told), kinds[1])}"
    if asked.kind not in kinds:
        return UNCLEAR
    value = picture.word(block(kinds.index(asked.kind), _ATTRIBUTES[asked.attribute]))
    return _said(value, asked, {"side": "on the ", "number": "", "colour": ""}[asked.attribute])


def _said(value: str, asked: Question, before: str) -> str:
    if asked.value is None:
        return f"{before}{value}"
    agrees = value == asked.value
    if asked.attribute == "number":
        return "yes, there are" if agrees else "no, not that many"
    if asked.attribute == "side":
        return "it looks like it" if agrees else "it appears elsewhere"
    return "yes" if agrees else "no"


_YES = {"yes", "yes, there are", "it looks like it"}
_NO = {"no", "no, not that many", "it appears elsewhere"}


class Belief:
    """What a guesser holds possible: for each block of a picture the probabilities of its values.

    Which group is which is not known: the one that is named first is the first. Where it knows nothing it has a favourite, which
    differs from caption to caption.
    """

    def __init__(self, caption: str) -> None:
        self._caption = caption
        self._blocks = [np.full(size, 1.0 / size) for size in SIZES]
        self._named: list[str] = []
        words = _singular(caption)
        kind = _first(words, KINDS)
        if kind is not None:
            group = self._group(kind)
            if group is not None:
                for attribute, listed in ((COLOUR, COLOURS), (NUMBER, NUMBERS)):
                    value = _first(words, listed)
                    if value is not None:
                        self._is(block(group, attribute), value)
        place = _first(words, PLACES)
        if place is not None:
            self._is(PLACE, place)

    def _group(self, kind: str) -> int | None:
        """The group of things of a kind, which are there; None where two others are already known."""
        if kind not in self._named:
            if len(self._named) == 2:
                return None
            self._named.append(kind)
            self._is(block(len(self._named) - 1, KIND), kind)
        return self._named.index(kind)

    def _is(self, place: int, value: str) -> None:
        self._blocks[place] = np.array([float(word == value) for word in BLOCKS[place]])

    def _is_not(self, place: int, value: str) -> None:
        left = self._blocks[place] * np.array([word != value for word in BLOCKS[place]])
        if left.sum() > 0:
            self._blocks[place] = left / left.sum()

    def hear(self, question: str, answer: str) -> None:
        """Takes in a question and what was answered."""
        asked, said = understand(question), answer.strip().lower()
        if asked is None:
            return
        if asked.value is None:
            self._hear_open(asked, said)
        elif said in _YES or said in _NO:
            self._hear_yes_no(asked, asked.value, said in _YES)

    def _hear_open(self, asked: Question, said: str) -> None:
        words = _WORDS.findall(said)
        if asked.attribute == "kind":
            kind = _first(words, KINDS)
            if kind is not None:
                self._group(kind)
            return
        if asked.attribute == "place":
            value, place = _first(words, PLACES), PLACE
        else:
            attribute = _ATTRIBUTES[asked.attribute]
            value = _first(words, GROUP[attribute])
            group = self._group(asked.kind) if asked.kind and value else None
            place = -1 if group is None else block(group, attribute)
        if value is not None and place >= 0:
            self._is(place, value)

    def _hear_yes_no(self, asked: Question, value: str, agreed: bool) -> None:
        if asked.attribute == "kind":
            if agreed:
                self._group(value)
            else:
                self._is_not(block(0, KIND), value)
                self._is_not(block(1, KIND), value)
            return
        if asked.attribute == "place":
            place = PLACE
        else:
            assert asked.kind is not None
            # Both answers say that there is such a thing.
            group = self._group(asked.kind)
            if group is None:
                return
            place = block(group, _ATTRIBUTES[asked.attribute])
        (self._is if agreed else self._is_not)(place, value)

    @property
    def named(self) -> tuple[str, ...]:
        """The kinds of things that are known to be there."""
        return tuple(self._named)

    def known(self, place: int) -> bool:
        """Whether a block has one value left."""
        return bool((self._blocks[place] > 0).sum() == 1)

    def expected(self) -> np.ndarray:
        """The features that are expected, float64 [WIDTH]."""
        return np.concatenate([self._leaning(place) for place in range(len(BLOCKS))])

    def _leaning(self, place: int) -> np.ndarray:
        """A block's probabilities, moved towards a favourite among the values that are left."""
        shares = self._blocks[place]
        left = np.flatnonzero(shares)
        favourite = int(left[seeds.derive(0, "favourite", self._caption, place) % len(left)])
        return (1 - _LEANING) * shares + _LEANING * (np.arange(len(shares)) == favourite)
