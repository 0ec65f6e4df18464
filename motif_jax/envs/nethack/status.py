"""The numbers of NetHack's status line (`blstats`): which is where, what people follow, and features of about unit size."""

from __future__ import annotations

import numpy as np

STATUS_FIELD = "blstats"
NUM_STATUS = 27

# Places in a status line. X and Y are the hero's column and row on the map.
X, Y, SCORE, HP, MAX_HP, DEPTH, GOLD, LEVEL, TIME, HUNGER = 0, 1, 9, 10, 11, 12, 13, 18, 20, 21
DUNGEON, DUNGEON_LEVEL, CONDITION = 23, 24, 25

# name -> place, the ones that people follow along a game
VITALS: dict[str, int] = {
    "depth": DEPTH,
    "score": SCORE,
    "gold": GOLD,
    "level": LEVEL,
    "hp": HP,
    "max hp": MAX_HP,
    "turn": TIME,
    "hunger": HUNGER,
}

# One factor for each place; those at 0 hide numbers that would identify a game or never vary.
BLSTATS_SCALE: np.ndarray = np.array(
    [1 / 79, 1 / 21, 0]  # column, row, strength percentage
    + [1 / 10] * 6  # strength, dexterity, constitution, intelligence, wisdom, charisma
    + [0, 1 / 10, 1 / 10, 0, 1 / 1000]  # score, hit points, their maximum, depth, gold
    + [1 / 10, 1 / 10, 1 / 10]  # energy, its maximum, armour
    + [0, 1 / 10, 1 / 100]  # monster level, level, points
    + [1 / 1000, 1, 1 / 10, 0, 0, 0, 0],  # time, hunger, load, dungeon, its level, conditions, alignment
    np.float32,
)
BLSTATS_CLIP = 5.0


def vitals(status: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the columns of `VITALS` by name, [T] each, from status lines [T, 26 or 27]."""
    return {name: np.asarray(status)[..., index] for name, index in VITALS.items()}


def cursor(status: np.ndarray) -> np.ndarray:
    """Returns int16 [T, 2], the hero's row and column on the screen, from status lines [T, 26 or 27]."""
    # Row 0 of the screen is the message line, so map row y is screen row y + 1.
    return np.stack([np.asarray(status)[..., Y] + 1, np.asarray(status)[..., X]], -1).astype(np.int16)
