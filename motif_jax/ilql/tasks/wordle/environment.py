"""A game of Wordle as a `TextEnvironment`, any text may be guessed; and its 35 tokens: letters,
colours, delimiters, as published.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from motif_jax.core.files import atomic_write_text
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import DELIMITER_TEXTS, Delimiters
from motif_jax.ilql.tasks.contract import Observation, Outcome, TextEnvironment
from motif_jax.ilql.tasks.wordle.game import (
    CODE_TEXTS,
    LETTERS,
    TRIES,
    Boards,
    WordTable,
    is_word,
    letters,
    pick,
)

TOKENS = (*LETTERS, "<g>", "<b>", "<y>", "<|pad|>", "</a>", "</s>", "<s>", "<a>", "</eod>")
NUMBERS = {token: number for number, token in enumerate(TOKENS)}
_PIECE = re.compile("|".join(re.escape(token) for token in TOKENS))


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


class WordleTokenizer:
    """Encodes each letter, colour or delimiter as a token."""

    size = len(TOKENS)
    delimiters = Delimiters(*(NUMBERS[text] for text in DELIMITER_TEXTS))

    def encode(self, text: str) -> list[int]:
        """Raises ValueError: a character is not a token."""
        pieces = _PIECE.findall(text)
        if sum(map(len, pieces)) != len(text):
            raise ValueError(f"{text!r} has more than letters a to z, colours and delimiters")
        return [NUMBERS[piece] for piece in pieces]

    def decode(self, tokens: list[int]) -> str:
        return "".join(TOKENS[token] for token in tokens)

    def save(self, folder: Path) -> None:
        backend = Backend(models.WordLevel(NUMBERS))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE.pattern), "isolated")
        # Without blanks between the letters.
        backend.decoder = decoders.Fuse()
        backend.add_special_tokens(list(DELIMITER_TEXTS))
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(folder / "tokenizer.json", backend.to_str())
