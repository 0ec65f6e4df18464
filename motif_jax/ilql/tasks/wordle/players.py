"""The published policies of Wordle, many boards at a time (Snell et al. 2022).

All draw words of the table, with the generator as the only source of randomness.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from motif_jax.ilql.tasks.wordle.boards import BoardPlayer, Boards, play, returns
from motif_jax.ilql.tasks.wordle.colours import WordTable, pick
from motif_jax.ilql.tasks.wordle.expert import best_words
from motif_jax.ilql.tasks.wordle.words import START_WORDS, read_words

# Size of the cache of positions' best words, which drops the oldest.
_MAX_POSITIONS = 200_000


def _game_words(boards: Boards, rows: np.ndarray) -> np.ndarray:
    """Which of the game's words fit: bool [rows, words], False for words that may only be
    guessed.
    """
    fits = boards.fits[rows]
    fits[:, boards.table.size :] = False
    return fits


def _mask_of(table: WordTable, words: Sequence[str] | None) -> np.ndarray:
    """Which of the table's words are in `words` (None: the game's): bool [table's words]."""
    mask = np.zeros(len(table.words), bool)
    listed = table.words[: table.size] if words is None else words
    mask[[table.index[word] for word in listed if word in table.index]] = True
    return mask


def _either(mask: np.ndarray, yes: BoardPlayer, no: BoardPlayer) -> BoardPlayer:
    """Plays the games of `mask`, bool [rows], by one player and the rest by another."""

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = np.zeros(len(rows), np.int64)
        for games, player in ((mask, yes), (~mask, no)):
            if games.any():
                chosen[games] = player(boards, rows[games], rng)
        return chosen

    return choose


def _after(start: BoardPlayer, rest: BoardPlayer) -> BoardPlayer:
    """Makes the first guess by one player and all further ones by another."""

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        player = _either(boards.turns[rows] == 0, start, rest)
        return player(boards, rows, rng)

    return choose


def random_mixture(
    table: WordTable, smart: float, words: Sequence[str] | None = None
) -> BoardPlayer:
    """Guesses a fitting word with probability `smart`, else any word, from the list `words`
    (default: the game's).
    """
    mask = _mask_of(table, words)
    indices = np.flatnonzero(mask)

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = indices[rng.integers(0, len(indices), len(rows))]
        by_knowledge = np.flatnonzero(rng.random(len(rows)) < smart)
        fits = boards.fits[rows[by_knowledge]] & mask
        # If no word of the list fits, any word of it is guessed.
        has_fitting = fits.any(1)
        chosen[by_knowledge[has_fitting]] = pick(fits[has_fitting], rng)
        return chosen

    return choose


def start_words(table: WordTable, words: Sequence[str] | None = None) -> BoardPlayer:
    """Guesses one of `words` (default: the list 'start_words') that still fits, or any fitting word
    if none does.
    """
    mask = _mask_of(table, read_words("policy", START_WORDS) if words is None else words)

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        fits = _game_words(boards, rows)
        among = fits & mask
        return pick(np.where(among.any(1)[:, None], among, fits), rng)

    return choose


def optimal(start: BoardPlayer | None = None) -> BoardPlayer:
    """Guesses the fitting word with the greatest information gain, ties broken at random; `start`
    makes the first guess.
    """
    cache: dict[bytes, np.ndarray] = {}

    def of_position(boards: Boards, row: int, key: bytes) -> np.ndarray:
        if key not in cache:
            members = np.flatnonzero(boards.fits[row, : boards.table.size])
            while len(cache) >= _MAX_POSITIONS:
                cache.pop(next(iter(cache)))
            # Of one or two words each tells as much as the other.
            cache[key] = members if len(members) <= 2 else best_words(boards.table.table, members)
        return cache[key]

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        packed = np.packbits(boards.fits[rows][:, : boards.table.size], axis=1)
        best = [
            of_position(boards, row, key.tobytes()) for row, key in zip(rows, packed, strict=True)
        ]
        # Only games with several best words, which are rare, use a random number.
        chosen = []
        for words in best:
            index = rng.integers(len(words)) if len(words) > 1 else 0
            chosen.append(words[index])
        return np.array(chosen, np.int64)

    return choose if start is None else _after(start, choose)


def repeat(
    table: WordTable, start: BoardPlayer | None = None, first: int | None = None
) -> BoardPlayer:
    """Repeats one of the game's first `first` guesses; the first guess is made by `start`, or is
    any word.
    """

    def again(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        turns = boards.turns[rows]
        count = turns if first is None else np.minimum(turns, first)
        # `_after` has made a first guess, so that `count` is at least 1.
        return boards.guesses[rows, rng.integers(0, count)]

    return _after(start or random_mixture(table, 0.0), again)


def wrong(table: WordTable, words: Sequence[str] | None = None) -> BoardPlayer:
    """Guesses a word of `words` (default: the game's) that cannot be the hidden one, or any of them
    if all can be.
    """
    mask = _mask_of(table, words)

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        misfits = mask & ~_game_words(boards, rows)
        return pick(np.where(misfits.any(1)[:, None], misfits, mask), rng)

    return choose


def mixture(share: float, first: BoardPlayer, second: BoardPlayer) -> BoardPlayer:
    """Plays the first player with probability `share`, else the second; redrawn every turn."""

    def choose(boards: Boards, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        player = _either(rng.random(len(rows)) < share, first, second)
        return player(boards, rows, rng)

    return choose


def monte_carlo(samples: int, player: BoardPlayer) -> BoardPlayer:
    """Samples `samples` games that `player` finishes, and guesses the first guess with the best
    mean return.

    Among equal guesses it takes the first sampled, as published.
    """

    def one(boards: Boards, row: int, rng: np.random.Generator) -> int:
        # Copies of one game, all of which go on side by side.
        sampled = play(boards.taken(np.repeat(row, samples)), player, rng)
        guesses = sampled.guesses[:, boards.turns[row]]
        words, first, group = np.unique(guesses, return_index=True, return_inverse=True)
        means = np.bincount(group, returns(sampled)) / np.bincount(group)
        best = np.flatnonzero(means == means.max())
        return int(words[best[np.argmin(first[best])]])

    return lambda boards, rows, rng: np.array([one(boards, row, rng) for row in rows], np.int64)
