"""Plays many games at once, as arrays [games, words]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogues
from motif_jax.ilql.tasks.wordle.colours import CODE_TEXTS, WordTable, pick

TRIES = 6


class Boards:
    """The state of games; all guesses are words of the table.

    Attributes:
      guesses: int32 [games, 6], indices into `table.words`; `codes`: uint8, their colours.
      turns: int64 [games], guesses so far.
      fits: bool [games, words], which words still fit, with words that may only be guessed.
      won: bool [games].
    """

    def __init__(self, table: WordTable, count: int) -> None:
        self.table = table
        self.guesses = np.zeros((count, TRIES), np.int32)
        self.codes = np.zeros((count, TRIES), np.uint8)
        self.turns = np.zeros(count, np.int64)
        self.fits = np.ones((count, len(table.words)), bool)
        self.won = np.zeros(count, bool)

    def __len__(self) -> int:
        return len(self.turns)

    def taken(self, rows: np.ndarray) -> Boards:
        """A copy of the games `rows`, which may repeat."""
        copy = Boards(self.table, 0)
        copy.guesses = self.guesses[rows]
        copy.codes = self.codes[rows]
        copy.turns = self.turns[rows]
        copy.fits = self.fits[rows]
        copy.won = self.won[rows]
        return copy

    def running(self) -> np.ndarray:
        """Indices of the games that have not ended, int64 [...]."""
        return np.flatnonzero(~self.won & (self.turns < TRIES))

    def step(
        self,
        rows: np.ndarray,
        guesses: np.ndarray,
        rng: np.random.Generator,
        hidden: np.ndarray | None = None,
    ) -> None:
        """Plays one turn of the games `rows` with `guesses`, int [rows].

        The hidden words, int [rows], are drawn from `rng` among those that fit, unless given.
        """
        table = self.table.table[guesses]  # codes of the guesses over all words
        size = self.table.size
        fits = self.fits[rows]
        if hidden is None:
            hidden = pick(fits[:, :size], rng)
        codes = table[np.arange(len(rows)), hidden]
        fits &= table == codes[:, None]
        self.fits[rows] = fits
        turns = self.turns[rows]
        self.guesses[rows, turns] = guesses
        self.codes[rows, turns] = codes
        self.turns[rows] = turns + 1
        # A game is won by guessing the only word left.
        left = fits[:, :size]
        # Zeros after a game's last guess are no guesses of word 0.
        is_answer = (self.guesses[rows] == left.argmax(1)[:, None]) & (
            np.arange(TRIES) <= turns[:, None]
        )
        self.won[rows] = (left.sum(1) == 1) & is_answer.any(1)


# (boards, rows, rng) -> a guess for each of the games `rows`: int [rows], indices into the table's
# words.
BoardPlayer = Callable[[Boards, np.ndarray, np.random.Generator], np.ndarray]


def play(
    boards: Boards, player: BoardPlayer, rng: np.random.Generator, hidden: np.ndarray | None = None
) -> Boards:
    """Plays all games to their ends, in place; `hidden` int [games] fixes their words, else they
    are drawn every turn.
    """
    rows = boards.running()
    while rows.size:
        guesses = player(boards, rows, rng)
        boards.step(rows, guesses, rng, None if hidden is None else hidden[rows])
        rows = boards.running()
    return boards


def returns(boards: Boards) -> np.ndarray:
    """The return of each game so far, float64 [games]: -1 per guess, 0 for a winning one."""
    return -(boards.turns - boards.won).astype(np.float64)


def dialogues_of(
    names: np.ndarray,
    guesses: np.ndarray,
    codes: np.ndarray,
    turns: np.ndarray,
    won: np.ndarray,
    metas: Sequence[str] = (),
) -> Dialogues:
    """Dialogues from guesses int [games, 6] (indices into `names`), codes, turns, whether the last
    guess won, and metas.
    """
    is_guess = np.arange(guesses.shape[1]) < turns[:, None]
    texts = np.empty((int(turns.sum()), 2), object)
    texts[:, 0] = names[guesses[is_guess]]
    texts[:, 1] = CODE_TEXTS[codes[is_guess]]
    rewards = np.where(is_guess, -1.0, 0.0)
    rewards[won, turns[won] - 1] = 0.0
    pairs = np.zeros((len(texts), 2))
    pairs[:, 0] = rewards[is_guess]
    return Dialogues(
        starts=np.concatenate([[0], np.cumsum(2 * turns)]).astype(np.int64),
        texts=texts.ravel(),
        rewards=pairs.ravel(),
        actions=np.tile([True, False], len(texts)),
        terminals=won | (turns >= TRIES),
        metas=np.array(metas or ["{}"] * len(turns), object),
    )
