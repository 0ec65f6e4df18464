"""Reads word lists: the package's, or any file with a word per line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from motif_jax.core import resources
from motif_jax.core.errors import UserError

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 5
_FOLDER = "third_party/wordle_words"
# They have 236, 40, 2,315, 12,972, 431 and 826 words.
NAMES = (
    "wordle_official_200",
    "tweet_words",
    "wordle_official",
    "wordle_official_guess",
    "wordle_official_400",
    "wordle_official_800",
)
START_WORDS = "start_words"
# Number of the tweets' first day; 'tweet_words' has the words of the days from then on.
FIRST_DAY = 210


def is_word(text: str) -> bool:
    """Whether a text is five of the letters a to z."""
    return len(text) == LENGTH and all(letter in LETTERS for letter in text)


def read_words(key: str, name: str, max_words: int | None = None) -> tuple[str, ...]:
    """The first `max_words` distinct five-letter words of a list, in order; other lines are
    skipped, as published.

    `name` is one of `NAMES`, 'start_words', or a file with a word per line. Raises UserError, which
    names the config's `key`.
    """
    listed = name in (*NAMES, START_WORDS)
    path = resources.path(f"{_FOLDER}/{name}.txt") if listed else Path(name)
    allowed = f"one of {', '.join(NAMES)}, or a file with a word a line"
    if not name or not os.path.isfile(path):
        raise UserError(f"config.{key}={name!r}: must be {allowed}")
    try:
        lines = path.read_text(encoding="utf-8-sig").split()
    except (OSError, ValueError) as error:
        raise UserError(
            f"config.{key}={name}: cannot be read ({error}); must be {allowed}"
        ) from None
    words = distinct(line for line in lines if is_word(line))[:max_words]
    if not words:
        raise UserError(
            f"config.{key}={name}: no five-letter word (a to z) in it; must be {allowed}"
        )
    return words


def distinct(words: Iterable[str]) -> tuple[str, ...]:
    """The words in order, without repeats."""
    return tuple(dict.fromkeys(words))
