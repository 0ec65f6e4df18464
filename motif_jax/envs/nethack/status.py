"""NetHack's status line (`blstats`): indices, numbers to display, and scaling to features of about
unit size.
"""

from __future__ import annotations

import numpy as np

STATUS_FIELD = "blstats"
NUM_STATUS = 27

# Indices in a status line. X and Y are the hero's column and row on the map.
X = 0
Y = 1
SCORE = 9
HP = 10
MAX_HP = 11
DEPTH = 12
GOLD = 13
LEVEL = 18
POINTS = 19
TIME = 20
HUNGER = 21
DUNGEON = 23
DUNGEON_LEVEL = 24
CONDITION = 25

# name -> index, for numbers that renderers display
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

# A factor per number; 0 hides numbers that identify a game or never vary.
BLSTATS_SCALE: np.ndarray = np.array(
    [1 / 79, 1 / 21, 0]  # column, row, strength percentage
    + [1 / 10] * 6  # strength, dexterity, constitution, intelligence, wisdom, charisma
    + [0, 1 / 10, 1 / 10, 0, 1 / 1000]  # score, hit points, their maximum, depth, gold
    + [1 / 10, 1 / 10, 1 / 10]  # energy, its maximum, armour
    + [0, 1 / 10, 1 / 100]  # monster level, level, points
    + [1 / 1000, 1, 1 / 10]  # time, hunger, load
    + [0, 0, 0, 0],  # dungeon, its level, conditions, alignment
    np.float32,
)
BLSTATS_CLIP = 5.0
