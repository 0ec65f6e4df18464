"""The published policies of Wordle, many boards at a time (Snell et al. 2022).

All draw words of the table, with the generator as the only source of randomness.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.envs.wordle.boards import BoardPlayer, Boards, play, returns
from motif_jax.envs.wordle.colours import WordTable, pick
from motif_jax.envs.wordle.expert import best_words

# Size of the cache of positions' best words, which drops the oldest.
_MOST_POSITIONS = 200_000


def _game_words(boards: Boards, rows: np.ndarray) -> np.ndarray:
    """Which of the game's words fit: bool [rows, words], False for words that may only be guessed."""
    fits = boards.fits[rows]
    fits[:, boards.table.size :] = False
    return fits


def mask_of(table: WordTable, words: Sequence[str]) -> np.ndarray:
    """Which of the table's words are in `words`: bool [table's words]."""
    mask = np.zeros(len(table.words), bool)
    mask[[table.index[word] for word in words if word in table.index]] = True
    return mask


class RandomMixture:
    """Guesses a fitting word with probability `smart`, else any word, from the list `words` (default: the game's).

    `RandomMixture(table, 1)` always guesses fitting words, `RandomMixture(table, 0)` any words.
    """

    def __init__(self, table: WordTable, smart: float, words: Sequence[str] | None = None) -> None:
        self._smart = smart
        self._mask = mask_of(table, table.words[: table.size] if words is None else words)
        self._places = np.flatnonzero(self._mask)

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = self._places[rng.integers(0, len(self._places), len(rows))]
        smart = np.flatnonzero(rng.random(len(rows)) < self._smart)
        fits = boards.fits[rows[smart]] & self._mask
        # If no word of a given list fits, any word of it is guessed.
        some = fits.any(1)
        chosen[smart[some]] = pick(fits[some], rng)
        return chosen


class StartWords:
    """Guesses a start word that still fits, or any fitting word if none does."""

    def __init__(self, table: WordTable, words: Sequence[str]) -> None:
        self._mask = mask_of(table, words)

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        fits = _game_words(boards, rows)
        among = fits & self._mask
        return pick(np.where(among.any(1)[:, None], among, fits), rng)


class Optimal:
    """Guesses the fitting word with the greatest information gain, ties broken at random; `start` makes the first guess."""

    def __init__(self, start: BoardPlayer | None = None) -> None:
        self._start = start
        self._known: dict[bytes, np.ndarray] = {}

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = np.zeros(len(rows), np.int64)
        first = boards.turns[rows] == 0 if self._start is not None else np.zeros(len(rows), bool)
        if self._start is not None and first.any():
            chosen[first] = self._start.choose(boards, rows[first], rng)
        others = np.flatnonzero(~first)
        if others.size:
            chosen[others] = self._best(boards, rows[others], rng)
        return chosen

    def _best(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        size = boards.table.size
        packed = np.packbits(boards.fits[rows][:, :size], axis=1)
        positions = [
            self._position(boards, row, key.tobytes()) for row, key in zip(rows, packed, strict=True)
        ]
        # Only games with several best words, which are rare, use a random number.
        chosen = np.array([found[0] for found in positions], np.int64)
        for place, found in enumerate(positions):
            if len(found) > 1:
                chosen[place] = found[rng.integers(len(found))]
        return chosen

    def _position(self, boards: Boards, row: int, key: bytes) -> np.ndarray:
        found = self._known.get(key)
        if found is None:
            members = np.flatnonzero(boards.fits[row, : boards.table.size])
            found = members if len(members) <= 2 else best_words(boards.table.table, members)
            while len(self._known) >= _MOST_POSITIONS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = found
        return found


class Repeat:
    """Repeats one of the game's first `first` guesses; the first guess is made by `start`, or is any word."""

    def __init__(self, table: WordTable, start: BoardPlayer | None = None, first: int | None = None) -> None:
        self._start: BoardPlayer = start or RandomMixture(table, 0.0)
        self._first = first

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        turns = boards.turns[rows]
        chosen = np.zeros(len(rows), np.int64)
        begins = turns == 0
        if begins.any():
            chosen[begins] = self._start.choose(boards, rows[begins], rng)
        go_on = np.flatnonzero(~begins)
        counts = turns[go_on] if self._first is None else np.minimum(turns[go_on], self._first)
        if go_on.size:
            chosen[go_on] = boards.guesses[rows[go_on], rng.integers(0, counts)]
        return chosen


class Wrong:
    """Guesses a word of `words` (default: the game's) that cannot be the hidden one, or any of them if all can be."""

    def __init__(self, table: WordTable, words: Sequence[str] | None = None) -> None:
        self._mask = mask_of(table, table.words[: table.size] if words is None else words)

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        bad = self._mask & ~_game_words(boards, rows)
        return pick(np.where(bad.any(1)[:, None], bad, self._mask), rng)


class Mixture:
    """Plays the first player with probability `share`, else the second; redrawn every turn."""

    def __init__(self, share: float, first: BoardPlayer, second: BoardPlayer) -> None:
        self._share, self._players = share, (first, second)

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        second = rng.random(len(rows)) >= self._share
        chosen = np.zeros(len(rows), np.int64)
        for player, mine in zip(self._players, (~second, second), strict=True):
            if mine.any():
                chosen[mine] = player.choose(boards, rows[mine], rng)
        return chosen


class MonteCarlo:
    """Samples `samples` games that `player` finishes, and guesses the first guess with the best mean return.

    Among equal guesses it takes the first sampled, as published.
    """

    def __init__(self, samples: int, player: BoardPlayer) -> None:
        self._samples, self._player = samples, player

    def choose(self, boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.array([self._one(boards, row, rng) for row in rows], np.int64)

    def _one(self, boards: Boards, row: int, rng: np.random.Generator) -> int:
        tried = play(boards.taken(np.repeat(row, self._samples)), self._player, rng)
        guesses, paid = tried.guesses[:, boards.turns[row]], returns(tried)
        words, where, group = np.unique(guesses, return_index=True, return_inverse=True)
        means = np.bincount(group, paid) / np.bincount(group)
        best = np.flatnonzero(means == means.max())
        return int(words[best[np.argmin(where[best])]])
