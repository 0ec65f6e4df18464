"""Missions as word numbers from a fixed list of BabyAI's words, for networks without a language
model.

Published agents number words in the order they see them, so runs differ; here all runs have the
same numbers.
"""

from __future__ import annotations

import re

import numpy as np

# most words of a mission; minigrid's largest levels reach 60, with four tasks and a place each
LENGTH = 80
# Numbered from 1, since 0 is padding. New words are appended, so that trained agents' numbers stay
# valid.
WORDS = (
    "go", "to", "the", "a", "an", "red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key", "door", "object",
    "open", "pick", "up", "put", "next", "then", "after", "you", "and", "in", "front", "of", "behind", "on", "your", "left",
    "right", "wall", "room",
)  # fmt: skip
_NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}
OTHER = len(WORDS) + 1  # number of all unlisted words
SIZE = OTHER + 1  # count of numbers, with 0
_WORD = re.compile(r"[a-z]+")


def numbered(mission: str) -> np.ndarray:
    """The words of `mission` (letters a to z, as published) as uint8 [LENGTH], padded with 0.
    Raises ValueError: too many.
    """
    words = _WORD.findall(mission.lower())
    if len(words) > LENGTH:
        raise ValueError(f"a mission has {len(words)} words, more than {LENGTH}: {mission[:80]!r}")
    out = np.zeros(LENGTH, np.uint8)
    out[: len(words)] = [_NUMBERS.get(word, OTHER) for word in words]
    return out
