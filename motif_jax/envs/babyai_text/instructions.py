"""Missions as word numbers, for networks that read no language, from a fixed list of all BabyAI words.

Published agents number words as they first see them, so that runs differ; here the numbers are the same everywhere.
"""

from __future__ import annotations

import re

import numpy as np

LENGTH = 80  # words of the longest mission; of four tasks, each with a place, in minigrid's largest levels it has 60
# After 0, which stands behind a mission. New words go to the end: agents that were trained keep the numbers of theirs.
WORDS = tuple(
    """go to the a an red green blue purple yellow grey ball box key door object open pick up put next then after you and
    in front of behind on your left right wall room""".split()
)
_NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}
OTHER = len(WORDS) + 1  # of every word that is not in the list
SIZE = OTHER + 1  # of all numbers, 0 among them
_WORD = re.compile(r"[a-z]+")


def numbered(mission: str) -> np.ndarray:
    """The words of `mission` (letters a to z, as published) as uint8 [LENGTH], padded with 0; ValueError if there are more."""
    words = _WORD.findall(mission.lower())
    if len(words) > LENGTH:
        raise ValueError(f"a mission has {len(words)} words, more than {LENGTH}: {mission[:80]!r}")
    out = np.zeros(LENGTH, np.uint8)
    out[: len(words)] = [_NUMBERS.get(word, OTHER) for word in words]
    return out
