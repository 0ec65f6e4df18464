"""What a player knows: of each letter and place whether it is there, cannot be, or may be (the published state)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from motif_jax.envs.wordle.colours import ABSENT, ELSEWHERE, HERE, letters
from motif_jax.envs.wordle.words import LENGTH, LETTERS

NOT_HERE, POSSIBLE, IS_HERE = 0, 1, 2
_TEXT = "nph"


def unknown() -> np.ndarray:
    """Everything is possible: int8 [26, 5]."""
    return np.full((len(LETTERS), LENGTH), POSSIBLE, np.int8)


def after(rows: Iterable[tuple[str, np.ndarray]]) -> np.ndarray:
    """The knowledge after guesses of five letters, each with its five colours: int8 [26, 5]."""
    known = unknown()
    for guess, colours in rows:
        for place, (letter, colour) in enumerate(zip(letters([guess])[0], colours, strict=True)):
            if colour == HERE:
                known[letter, place] = IS_HERE
            elif colour == ELSEWHERE:
                known[letter, place] = NOT_HERE
            else:
                known[letter] = NOT_HERE
    return known


def colours(known: np.ndarray, guess: str) -> np.ndarray:
    """The colours of a guess that led to this knowledge, int [5]."""
    rows = letters([guess])[0]
    here = known[rows, np.arange(LENGTH)] == IS_HERE
    absent = (known[rows] == NOT_HERE).all(1)
    return np.where(here, HERE, np.where(absent, ABSENT, ELSEWHERE))


def fitting(known: np.ndarray, words: Sequence[str]) -> np.ndarray:
    """Which words do not contradict the knowledge, bool [N]: the published filter."""
    given = letters(words)
    stands = given[:, None, :] == np.arange(len(LETTERS))[None, :, None]  # [N, 26, 5]
    occurs = stands.any(2)
    good = ~((known == IS_HERE) & ~stands).any(2) & ~((known == NOT_HERE) & stands).any(2)
    absent = (known == NOT_HERE).all(1)
    open_ = (known == POSSIBLE).all(1)
    return (open_ | np.where(absent, ~occurs, good & occurs)).all(1)


def to_text(known: np.ndarray) -> str:
    """130 letters, a row of five for each letter: n not here, p possible, h here."""
    return "".join(_TEXT[cell] for cell in known.ravel())
