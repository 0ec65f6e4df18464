"""From the engine's 27 status numbers to features of about unit size."""

from __future__ import annotations

import numpy as np

# One factor for each entry of blstats; those at 0 hide numbers that would identify a game or never vary.
BLSTATS_SCALE: np.ndarray = np.array(
    [1 / 79, 1 / 21, 0]  # column, row, strength percentage
    + [1 / 10] * 6  # strength, dexterity, constitution, intelligence, wisdom, charisma
    + [0, 1 / 10, 1 / 10, 0, 1 / 1000]  # score, hit points, their maximum, depth, gold
    + [
        1 / 10,
        1 / 10,
        1 / 10,
        0,
        1 / 10,
        1 / 100,
    ]  # energy, its maximum, armour, monster level, level, points
    + [1 / 1000, 1, 1 / 10, 0, 0, 0, 0],  # time, hunger, load, dungeon, its level, conditions, alignment
    np.float32,
)
BLSTATS_CLIP = 5.0
