"""A game of Wordle as a `TextEnvironment`; any text may be guessed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment
from motif_jax.ilql.tasks.wordle.boards import TRIES, Boards
from motif_jax.ilql.tasks.wordle.colours import CODE_TEXTS, WordTable, letters, pick
from motif_jax.ilql.tasks.wordle.words import is_word


class WordleObservation(Observation):
    """A game so far.

    Attributes:
      codes: the colours of each guess; None for a guess that is not five letters a to z.
      fits: bool [words], which words still fit.
    """

    def __init__(
        self, table: WordTable, guesses: Sequence[str] = (), codes: Sequence[int | None] = ()
    ) -> None:
        self.table = table
        self.guesses = tuple(guesses)
        self.codes = tuple(codes)
        self.fits = np.ones(len(table.words), bool)
        for guess, code in zip(guesses, codes, strict=True):
            if code is not None:
                self.fits &= table.codes(letters([guess]))[0] == code

    @functools.cached_property
    def reward(self) -> float:
        """The reward of the newest guess: 0 if it is the only word left, else -1."""
        left = np.flatnonzero(self.fits[: self.table.size])
        return 0.0 if len(left) == 1 and self.table.words[left[0]] in self.guesses else -1.0

    @property
    def terminal(self) -> bool:
        return len(self.guesses) == TRIES or self.reward == 0.0

    def to_sequence(self) -> Dialogue:
        """Guesses with rewards, each followed by its colours if it has any."""
        texts: list[str] = []
        rewards: list[float | None] = []
        for turn, (guess, code) in enumerate(zip(self.guesses, self.codes, strict=True), start=1):
            texts.append(guess)
            # Only the newest can have won, since a won game ends; a malformed one never does.
            rewards.append(self.reward if turn == len(self.guesses) and code is not None else -1.0)
            if code is not None:
                texts.append(str(CODE_TEXTS[code]))
                rewards.append(None)
        return Dialogue(tuple(texts), tuple(rewards), self.terminal)

    def board(self) -> Boards:
        """The game as one board; leaves out guesses that are not in the table."""
        boards = Boards(self.table, 1)
        boards.fits[0] = self.fits
        for guess, code in zip(self.guesses, self.codes, strict=True):
            if code is not None and guess in self.table.index:
                turn = boards.turns[0]
                boards.guesses[0, turn] = self.table.index[guess]
                boards.codes[0, turn] = code
                boards.turns[0] += 1
        return boards


class WordleEnvironment(TextEnvironment):
    """Answers guesses with colours."""

    def __init__(self, table: WordTable) -> None:
        self._table = table

    def reset(self, rng: np.random.Generator, start: Any = None) -> WordleObservation:
        self._rng = rng
        self._now = WordleObservation(self._table) if start is None else start
        return self._now

    def step(self, action: str, hidden: str | None = None) -> Outcome:
        """Guesses `action`; `hidden` replaces the word drawn among those that fit."""
        now = self._now
        if now.terminal:
            raise ValueError("the game has ended")
        code: int | None = None
        if is_word(action):
            if hidden is None:
                # Drawn anew in each turn, as published; some word always fits.
                word = int(pick(now.fits[None, : self._table.size], self._rng)[0])
            else:
                word = self._table.index[hidden]
            code = int(self._table.codes(letters([action]))[0, word])
        self._now = WordleObservation(self._table, (*now.guesses, action), (*now.codes, code))
        return Outcome(self._now, self._now.reward, self._now.terminal)
