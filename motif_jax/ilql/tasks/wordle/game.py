"""Wordle as arrays: word lists, colours of guesses, what a player knows, many games at once.

A word list is the package's, or any file with a word per line. `WordTable` computes the colours of
guesses from one table [guess, word]. A letter is `here` at its own position, `elsewhere` if it
occurs in the word, else absent. Each letter counts by itself, so repeated letters differ from the
newspaper's game. Five colours are a code below 243, in base 3 with the first letter as the lowest
digit. A word still fits after a guess if it would have given the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues.dialogue import Dialogues

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
ABSENT, ELSEWHERE, HERE = 0, 1, 2
NUM_CODES = 3**LENGTH
ALL_HERE = NUM_CODES - 1
# Text of a colour, by number.
MARKS = ("<b>", "<y>", "<g>")
_WEIGHTS = 3 ** np.arange(LENGTH)
# Bytes of a block during the table's construction.
_BLOCK = 1 << 24
# Colours of each code, int [243, 5].
DIGITS = np.arange(NUM_CODES)[:, None] // _WEIGHTS % 3
# The text of each code, [243] of str.
CODE_TEXTS = np.array(["".join(MARKS[digit] for digit in digits) for digits in DIGITS], object)
CODES = {text: code for code, text in enumerate(CODE_TEXTS)}
NOT_HERE, POSSIBLE, IS_HERE = 0, 1, 2
TRIES = 6


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
    lines = path.read_text(encoding="utf-8-sig").split()
    words = distinct(line for line in lines if is_word(line))[:max_words]
    if not words:
        raise UserError(
            f"config.{key}={name}: no five-letter word (a to z) in it; must be {allowed}"
        )
    return words


def distinct(words: Iterable[str]) -> tuple[str, ...]:
    """The words in order, without repeats."""
    return tuple(dict.fromkeys(words))


def letters(words: Sequence[str]) -> np.ndarray:
    """Words of the letters a to z as numbers, uint8 [N, 5]."""
    joined = np.frombuffer("".join(words).encode(), np.uint8)
    return (joined - ord(LETTERS[0])).reshape(-1, LENGTH)


class WordTable:
    """Words, and the codes of guesses over them.

    Attributes:
      words, names: the game's words, one of which is hidden, then those that may only be guessed;
          `names` is an array.
      size: number of the game's words.
      index: word -> its index in `words`.
    """

    def __init__(self, words: Sequence[str], more: Sequence[str] = ()) -> None:
        self.size = len(distinct(words))
        self.words = distinct([*words, *more])
        self.index = {word: index for index, word in enumerate(self.words)}
        self.names = np.array(self.words, object)
        word_letters = letters(self.words)
        occurs = np.zeros((len(LETTERS), len(self.words)), np.uint8)
        occurs[word_letters.T, np.arange(len(self.words))] = 1
        same = word_letters.T[:, None, :] == np.arange(len(LETTERS), dtype=np.uint8)[None, :, None]
        # The digit that a letter adds to the code at a place, for each hidden word: 0 for absent, 1
        # for elsewhere, 2 for the same place; uint8 [5, 26, words].
        self._parts = (occurs[None] + same) * _WEIGHTS.astype(np.uint8)[:, None, None]

    def codes(self, guess: np.ndarray) -> np.ndarray:
        """The codes of any guesses over all words: uint8 [B, 5] of letters -> uint8 [B, words]."""
        codes = self._parts[0][guess[:, 0]]
        for position in range(1, LENGTH):
            codes += self._parts[position][guess[:, position]]
        return codes

    @functools.cached_property
    def table(self) -> np.ndarray:
        """The codes of all words as guesses over all words, uint8 [words, words]."""
        word_letters = letters(self.words)
        count = len(self.words)
        table = np.empty((count, count), np.uint8)
        block = max(1, _BLOCK // count)
        for start in range(0, count, block):
            table[start : start + block] = self.codes(word_letters[start : start + block])
        return table


def pick(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws the index of a true value in each row uniformly: bool [B, N] (at least one per row) ->
    int64 [B].
    """
    counts = mask.sum(1)
    indices = np.flatnonzero(mask)
    # `indices` has the true values of all rows, one row after the other.
    chosen = (np.cumsum(counts) - counts) + rng.integers(0, counts)
    return indices[chosen] % mask.shape[1]


def colours_of(known: np.ndarray, guess: str) -> np.ndarray:
    """The colours int [5] of a guess that led to the knowledge int [26, 5]."""
    rows = letters([guess])[0]
    here = known[rows, np.arange(LENGTH)] == IS_HERE
    absent = (known[rows] == NOT_HERE).all(1)
    return np.where(here, HERE, np.where(absent, ABSENT, ELSEWHERE))


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
