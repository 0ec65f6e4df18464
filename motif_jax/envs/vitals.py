"""What the numbers of NetHack's status line mean, for tables, players and watches over a run."""

from __future__ import annotations

import numpy as np

STATUS_FIELD = "blstats"

# name -> index, the ones that people follow along a game
VITALS: dict[str, int] = {
    "depth": 12,
    "score": 9,
    "gold": 13,
    "level": 18,
    "hp": 10,
    "max hp": 11,
    "turn": 20,
    "hunger": 21,
}


def vitals(status: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the columns of `VITALS` by name, [T] each, from status lines [T, 26 or 27]."""
    return {name: np.asarray(status)[..., index] for name, index in VITALS.items()}


def cursor(status: np.ndarray) -> np.ndarray:
    """Returns int16 [T, 2], the hero's row and column on the screen, from status lines [T, 26 or 27]."""
    # Row 0 of the screen is the message line, so map row y is screen row y + 1.
    return np.stack([np.asarray(status)[..., 1] + 1, np.asarray(status)[..., 0]], -1).astype(np.int16)
