"""Computes the colours of guesses from one table [guess, word].

A letter is `here` at its own position, `elsewhere` if it occurs in the word, else absent. Each
letter counts by itself, so repeated letters differ from the newspaper's game. Five colours are a
code below 243, in base 3 with the first letter as the lowest digit. A word still fits after a guess
if it would have given the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from motif_jax.ilql.tasks.wordle.words import LENGTH, LETTERS, distinct

ABSENT, ELSEWHERE, HERE = 0, 1, 2
NUM_CODES = 3**LENGTH
ALL_HERE = NUM_CODES - 1
# Text of a colour, by number.
MARKS = ("<b>", "<y>", "<g>")
_WEIGHTS = 3 ** np.arange(LENGTH)
# Bytes of a block during the table's construction.
_BLOCK = 1 << 24
# Colours of each code, int [243, 5].
DIGITS = np.arange(NUM_CODES)[:, None] // _WEIGHTS % 3
# The text of each code, [243] of str.
CODE_TEXTS = np.array(["".join(MARKS[digit] for digit in digits) for digits in DIGITS], object)
CODES = {text: code for code, text in enumerate(CODE_TEXTS)}


def letters(words: Sequence[str]) -> np.ndarray:
    """Words of the letters a to z as numbers, uint8 [N, 5]."""
    joined = np.frombuffer("".join(words).encode(), np.uint8)
    return (joined - ord(LETTERS[0])).reshape(-1, LENGTH)


class WordTable:
    """Words, and the codes of guesses over them.

    Attributes:
      words, names: the game's words, one of which is hidden, then those that may only be guessed;
          `names` is an array.
      size: number of the game's words.
      index: word -> its index in `words`.
    """

    def __init__(self, words: Sequence[str], more: Sequence[str] = ()) -> None:
        self.size = len(distinct(words))
        self.words = distinct([*words, *more])
        self.index = {word: index for index, word in enumerate(self.words)}
        self.names = np.array(self.words, object)
        word_letters = letters(self.words)
        occurs = np.zeros((len(LETTERS), len(self.words)), np.uint8)
        occurs[word_letters.T, np.arange(len(self.words))] = 1
        same = word_letters.T[:, None, :] == np.arange(len(LETTERS), dtype=np.uint8)[None, :, None]
        # The digit that a letter adds to the code at a place, for each hidden word: 0 for absent, 1
        # for elsewhere, 2 for the same place; uint8 [5, 26, words].
        self._parts = (occurs[None] + same) * _WEIGHTS.astype(np.uint8)[:, None, None]

    def codes(self, guess: np.ndarray) -> np.ndarray:
        """The codes of any guesses over all words: uint8 [B, 5] of letters -> uint8 [B, words]."""
        codes = self._parts[0][guess[:, 0]]
        for position in range(1, LENGTH):
            codes += self._parts[position][guess[:, position]]
        return codes

    @functools.cached_property
    def table(self) -> np.ndarray:
        """The codes of all words as guesses over all words, uint8 [words, words]."""
        word_letters = letters(self.words)
        count = len(self.words)
        table = np.empty((count, count), np.uint8)
        block = max(1, _BLOCK // count)
        for start in range(0, count, block):
            table[start : start + block] = self.codes(word_letters[start : start + block])
        return table


def pick(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws the index of a true value in each row uniformly: bool [B, N] (at least one per row) ->
    int64 [B].
    """
    counts = mask.sum(1)
    indices = np.flatnonzero(mask)
    # `indices` has the true values of all rows, one row after the other.
    chosen = (np.cumsum(counts) - counts) + rng.integers(0, counts)
    return indices[chosen] % mask.shape[1]
