"""A player's knowledge: whether each letter is, cannot be, or may be at each place (the published
state).
"""

from __future__ import annotations

import numpy as np

from motif_jax.ilql.tasks.wordle.colours import ABSENT, ELSEWHERE, HERE, letters
from motif_jax.ilql.tasks.wordle.words import LENGTH

NOT_HERE, POSSIBLE, IS_HERE = 0, 1, 2


def colours(known: np.ndarray, guess: str) -> np.ndarray:
    """The colours int [5] of a guess that led to the knowledge int [26, 5]."""
    rows = letters([guess])[0]
    here = known[rows, np.arange(LENGTH)] == IS_HERE
    absent = (known[rows] == NOT_HERE).all(1)
    return np.where(here, HERE, np.where(absent, ABSENT, ELSEWHERE))
