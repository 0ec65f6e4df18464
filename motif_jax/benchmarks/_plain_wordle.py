"""Wordle state by state: a plain yardstick that works as the published game is described, without tables or arrays.

What is known is a row of five cells for each letter; after a guess the list is filtered word by word, and what was filtered for a state
is kept, as in the published code.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH, TRIES = 5, 6
NOT_HERE, POSSIBLE, HERE = 0, 1, 2
_OPEN, _ABSENT = (POSSIBLE,) * LENGTH, (NOT_HERE,) * LENGTH

State = tuple[tuple[int, ...], ...]
BEGINNING: State = (_OPEN,) * len(LETTERS)


def after(state: State, guess: str, hidden: str) -> State:
    """The state after a guess."""
    rows = list(state)
    for place, letter in enumerate(guess):
        row = LETTERS.index(letter)
        if letter == hidden[place]:
            rows[row] = (*rows[row][:place], HERE, *rows[row][place + 1 :])
        elif letter in hidden:
            rows[row] = (*rows[row][:place], NOT_HERE, *rows[row][place + 1 :])
        else:
            rows[row] = _ABSENT
    return tuple(rows)


def fits(state: State, word: str) -> bool:
    """Whether a word contradicts nothing."""
    for letter, row in zip(LETTERS, state, strict=True):
        if row == _OPEN:
            continue
        if row == _ABSENT:
            if letter in word:
                return False
            continue
        if letter not in word:
            return False
        for cell, given in zip(row, word, strict=True):
            if (cell == HERE and given != letter) or (cell == NOT_HERE and given == letter):
                return False
    return True


class PlainGame:
    """The game on a list of words.

    Args:
      words: the list.
      seed: of all draws.
    """

    def __init__(self, words: Sequence[str], seed: int) -> None:
        self._words, self._rng = list(words), random.Random(seed)
        self._fitting: dict[State, list[str]] = {}
        self._best: dict[State, list[str]] = {}

    def fitting(self, state: State) -> list[str]:
        """The words that fit."""
        if state not in self._fitting:
            self._fitting[state] = [word for word in self._words if fits(state, word)]
        return self._fitting[state]

    def best(self, state: State) -> list[str]:
        """The expert's words: of each fitting one all answers are tried."""
        if state not in self._best:
            words = self.fitting(state)
            gains = {}
            for guess in words:
                counts: dict[State, int] = {}
                for hidden in words:
                    following = after(state, guess, hidden)
                    counts[following] = counts.get(following, 0) + 1
                left = sum(
                    count * math.log(len(self.fitting(following))) for following, count in counts.items()
                )
                gains[guess] = math.log(len(words)) - left / len(words)
            self._best[state] = [word for word in words if gains[word] >= max(gains.values()) - 1e-9]
        return self._best[state]

    def play(self, expert: bool, start: Sequence[str] = ()) -> float:
        """One game of the expert or of fitting words, its first guess one of `start` where there are; its return."""
        said: list[str] = []
        state, paid = BEGINNING, 0.0
        while len(said) < TRIES:
            words = self.best(state) if expert and (said or not start) else self.fitting(state)
            guess = self._rng.choice(words if said or not start else list(start))
            hidden = self._rng.choice(self.fitting(state))
            state = after(state, guess, hidden)
            said.append(guess)
            left = self.fitting(state)
            if len(left) == 1 and left[0] in said:
                return paid
            paid -= 1
        return paid
