"""Games from tweets: rows of colours without words, filled with fitting guesses (Snell et al. 2022,
human data).

A game is a tweet, a word that has a guess for each of the tweet's rows, and a uniformly drawn guess
per row. The published code redraws tweet and word until they fit; drawing among fitting pairs gives
the same distribution.
"""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_text, read_json
from motif_jax.ilql.dialogues.dialogue import Dialogues, share_of
from motif_jax.ilql.tasks.wordle import game
from motif_jax.ilql.tasks.wordle.game import (
    ABSENT,
    ALL_HERE,
    CODES,
    ELSEWHERE,
    FIRST_DAY,
    HERE,
    LENGTH,
    NUM_CODES,
    TRIES,
    BoardPlayer,
    Boards,
    dialogues_of,
    is_word,
    letters,
    play,
)

SQUARES = {"⬛": ABSENT, "⬜": ABSENT, "🟨": ELSEWHERE, "🟦": ELSEWHERE, "🟩": HERE, "🟧": HERE}
_DRAWN = {ABSENT: "⬛", ELSEWHERE: "🟨", HERE: "🟩"}
# Pads games with fewer than six rows.
_NO_ROW = NUM_CODES
_BLOCK = 1 << 24
_REMEDY = "give a file {games: [[word, [row]]], transitions: {word: {row: [guess]}}} as build_human_datastructure writes it"


class Tweet(NamedTuple):
    """The day's word ('' if unknown) and the colour codes of one to six guesses."""

    word: str
    codes: tuple[int, ...]


def rows_of(text: str) -> tuple[int, ...]:
    """Colour codes of the rows of five squares from a text's first one on, up to another line, the
    sixth row or the winning one.

    As in the released code, a longer run further down is not looked for, and a line with blanks
    around its squares is no row.
    """
    codes: list[int] = []
    for line in text.splitlines():
        is_row = len(line) == LENGTH and all(square in SQUARES for square in line)
        if not is_row and codes:
            break
        if is_row:
            codes.append(sum(SQUARES[square] * 3**position for position, square in enumerate(line)))
        if len(codes) == TRIES:
            break
    return _until_won(codes)


def _until_won(codes: Sequence[int]) -> tuple[int, ...]:
    return tuple(codes[: codes.index(ALL_HERE) + 1] if ALL_HERE in codes else codes)


def read_csv(path: str | Path, days: Sequence[str]) -> list[Tweet]:
    """Reads tweets from five columns, first the day's number, last the text; rows without a game
    are skipped.

    `days` are the words from `FIRST_DAY` on. Raises UserError: a line has another day.
    """
    tweets = []
    with open(path, encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            codes = rows_of(row[4])
            if not codes:
                continue
            index = int(row[0]) - FIRST_DAY
            # Python would count a number below 0 from the end.
            if not 0 <= index < len(days):
                last = FIRST_DAY + len(days) - 1
                raise UserError(
                    f"{path}: row {number}: day {row[0]!r} must be {FIRST_DAY} to {last}"
                )
            tweets.append(Tweet(days[index], codes))
    return tweets


class Guesses:
    """Guesses by word and colours (the published `transitions`); `words` and `guesses` are arrays
    of str.
    """

    def __init__(
        self, words: Sequence[str], guesses: Sequence[str], flat: np.ndarray, offsets: np.ndarray
    ) -> None:
        """`flat` int [...] indexes `guesses`; its range offsets[w, c] to offsets[w, c + 1] belongs
        to word w and code c.
        """
        self.words = np.array(words, object)
        self.guesses = np.array(guesses, object)
        self._flat = flat
        self._offsets = offsets
        self.index = {word: index for index, word in enumerate(words)}

    @classmethod
    def of(cls, words: Sequence[str], guesses: Sequence[str]) -> Guesses:
        table = game.WordTable(words)
        # [words, guesses], the codes of all guesses by word.
        rows = np.ascontiguousarray(table.codes(letters(guesses)).T)
        # An entry for each word and guess: 30 million of the official lists.
        dtype = np.uint16 if len(guesses) <= 1 << 16 else np.int32
        flat = np.concatenate([np.argsort(row, kind="stable").astype(dtype) for row in rows])
        counts = np.stack([np.bincount(row, minlength=NUM_CODES) for row in rows])
        return cls(table.words, guesses, flat, _offsets(np.cumsum(counts).reshape(counts.shape)))

    @classmethod
    def read(cls, transitions: Mapping[str, Mapping[str, Sequence[str]]]) -> Guesses:
        """Reads the published structure. Raises ValueError: it is invalid."""
        names: dict[str, int] = {}
        flat: list[int] = []
        ends = np.zeros((len(transitions), NUM_CODES), np.int64)
        for word, (name, rows) in enumerate(transitions.items()):
            if not is_word(name):
                raise ValueError(f"{name!r} is not a five-letter word")
            unknown = set(rows) - set(CODES)
            if unknown:
                raise ValueError(f"{unknown.pop()!r} is not a row of colours")
            for code, text in enumerate(game.CODE_TEXTS):
                for guess in rows.get(text, ()):
                    if not is_word(guess):
                        raise ValueError(f"{guess!r} is not a five-letter word")
                    flat.append(names.setdefault(guess, len(names)))
                ends[word, code] = len(flat)
        if not flat:
            raise ValueError("no guess in its transitions")
        return cls(list(transitions), list(names), np.array(flat, np.int32), _offsets(ends))

    def to_json(self) -> dict[str, dict[str, list[str]]]:
        """The published structure: word -> row of colours -> guesses."""

        def guesses(row: np.ndarray, code: int) -> list[str]:
            return self.guesses[self._flat[row[code] : row[code + 1]]].tolist()

        return {
            word: {
                str(game.CODE_TEXTS[code]): guesses(row, code)
                for code in np.flatnonzero(np.diff(row)).tolist()
            }
            for word, row in zip(self.words, self._offsets, strict=True)
        }

    @functools.cached_property
    def possible(self) -> np.ndarray:
        """Whether a word has a guess with a code: bool [words, 244]; the last column, for padding,
        is True.
        """
        # Column 243 is `_NO_ROW`, which any word allows.
        return np.concatenate([np.diff(self._offsets) > 0, np.ones((len(self.words), 1), bool)], 1)

    def draw(self, words: np.ndarray, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A uniform guess for each word and code: int [N], int [N] -> int [N] indices into
        `guesses`.
        """
        first = self._offsets[words, codes]
        return self._flat[first + rng.integers(0, self._offsets[words, codes + 1] - first)].astype(
            np.int64
        )


def _offsets(ends: np.ndarray) -> np.ndarray:
    # [words, 243] becomes [words, 244]: a word begins where the one before ends.
    before = np.concatenate([[0], ends[:-1, -1]])
    return np.concatenate([before[:, None], ends], 1)


def read_structure(path: str | Path) -> tuple[list[Tweet], Guesses]:
    """Reads games and guesses of a published JSON file. Raises UserError: it has another form."""
    data = read_json(path, _REMEDY, keys=("games", "transitions"))
    guesses = Guesses.read(data["transitions"])
    tweets = [
        Tweet(str(word), _until_won([CODES[row] for row in rows])) for word, rows in data["games"]
    ]
    if not all(1 <= len(tweet.codes) <= TRIES for tweet in tweets):
        raise UserError(f"{path}: games must have one to six rows each")
    return tweets, guesses


def write_structure(path: str | Path, tweets: Iterable[Tweet], guesses: Guesses) -> None:
    """Writes the published JSON form."""
    games = [[tweet.word, [str(game.CODE_TEXTS[code]) for code in tweet.codes]] for tweet in tweets]
    atomic_write_text(path, json.dumps({"games": games, "transitions": guesses.to_json()}))


def best(tweets: Sequence[Tweet], share: float, rows_only: bool = False) -> list[Tweet]:
    """The best `share` of the games: fewest guesses first, lost ones last.

    With `rows_only` (`compat.wordle_top_p_rows`), as published, only the number of rows counts: a
    loss equals a win in six.
    """
    lost = np.array([ALL_HERE not in tweet.codes for tweet in tweets])
    rows = np.array([len(tweet.codes) for tweet in tweets])
    order = np.argsort(rows) if rows_only else np.argsort(rows + TRIES * lost, kind="stable")
    return [tweets[index] for index in order[: share_of(len(tweets), share)]]


class TweetGames:
    """A stream of games with the colours of tweets; the hidden word is the day's, or any word with
    guesses for all rows.

    `facts` counts `games`, those with a row that no word gives (`games_with_impossible_rows`),
    those without a word for all rows (`games_left_out`), and distinct `impossible_rows`. Raises
    UserError: no word fits, or a day's word has no guesses.
    """

    def __init__(self, tweets: Sequence[Tweet], guesses: Guesses, true_word: bool = False) -> None:
        self._guesses = guesses
        codes = np.full((len(tweets), TRIES), _NO_ROW, np.int64)
        for row, tweet in enumerate(tweets):
            codes[row, : len(tweet.codes)] = tweet.codes
        possible = guesses.possible
        is_impossible: np.ndarray = np.logical_not(possible.any(axis=0))
        if true_word:
            missing = {tweet.word for tweet in tweets} - set(guesses.index)
            if missing:
                raise UserError(
                    f"the day's word {min(missing)!r} of a tweet is not in the list of words"
                )
            self._words = np.array([guesses.index[tweet.word] for tweet in tweets])
            counts = possible[self._words[:, None], codes].all(1).astype(np.int64)
        else:
            counts = self._fitting_words(codes)
        self.facts = {
            "games": len(tweets),
            "games_with_impossible_rows": int(is_impossible[codes].any(1).sum()),
            "games_left_out": int((counts == 0).sum()),
            "impossible_rows": int(is_impossible[np.unique(codes)].sum()),
        }
        if not counts.any():
            raise UserError(
                f"none of the {len(tweets):,} games has colours that a word of the lists makes"
            )
        self._true_word = true_word
        self._codes = codes
        # A game is drawn as often as words fit it: each pair of game and word is equally likely.
        self._ends = np.cumsum(counts)

    def _fitting_words(self, codes: np.ndarray) -> np.ndarray:
        """How many words have guesses for all rows: int [N, 6] -> int64 [N]."""
        # The order of rows does not matter, and many tweets have the same ones.
        distinct, group = np.unique(np.sort(codes, 1), axis=0, return_inverse=True)
        counts = np.empty(len(distinct), np.int64)
        step = max(1, _BLOCK // len(self._guesses.words))
        for start in range(0, len(distinct), step):
            counts[start : start + step] = self._fits(distinct[start : start + step]).sum(1)
        return counts[group.ravel()]

    def _fits(self, codes: np.ndarray) -> np.ndarray:
        """Which words have guesses for all rows: int [N, 6] -> bool [N, words]."""
        columns = self._guesses.possible.T
        fits = columns[codes[:, 0]]
        for row in range(1, TRIES):
            fits &= columns[codes[:, row]]
        return fits

    def __call__(self, rng: np.random.Generator, count: int, first: int) -> Dialogues:
        # One random number draws game and word: each game covers one number per fitting word.
        drawn = rng.integers(0, self._ends[-1], count)
        games = np.searchsorted(self._ends, drawn, side="right")
        codes = self._codes[games]
        if self._true_word:
            words = self._words[games]
        else:
            # The number within the game says which of its fitting words is meant.
            before = np.where(games > 0, self._ends[games - 1], 0)
            fits = self._fits(codes)
            # The first word with more fitting ones up to it than that number.
            words = (np.cumsum(fits, 1) > (drawn - before)[:, None]).argmax(1)
        is_row = codes != _NO_ROW
        guesses = np.zeros((count, TRIES), np.int64)
        guesses[is_row] = self._guesses.draw(np.repeat(words, is_row.sum(1)), codes[is_row], rng)
        won = (codes == ALL_HERE).any(1)
        return dialogues_of(
            self._guesses.guesses, guesses, np.where(is_row, codes, 0), is_row.sum(1), won
        )


def simulate(
    path: str | Path,
    days: Sequence[str],
    table: game.WordTable,
    player: BoardPlayer,
    count: int,
    rng: np.random.Generator,
) -> None:
    """Writes `count` simulated tweets as CSV in the published form; all tweets of a day have the
    same word.

    `days` are the words from `FIRST_DAY` on, all in `table`.
    """
    chosen = rng.integers(0, len(days), count)
    lines: list[list[str]] = []
    # In parts, since boards hold a bool for each game and word.
    step = max(1, _BLOCK // len(table.words))
    for start in range(0, count, step):
        today = chosen[start : start + step]
        hidden = np.array([table.index[days[day]] for day in today])
        boards = play(Boards(table, len(today)), player, rng, hidden)
        for day, turns, codes, won in zip(
            today, boards.turns, boards.codes, boards.won, strict=True
        ):
            number = FIRST_DAY + day
            score = turns if won else "X"
            squares = [
                "".join(_DRAWN[colour] for colour in game.DIGITS[code]) for code in codes[:turns]
            ]
            text = "\n".join([f"Wordle {number} {score}/{TRIES}", "", *squares])
            lines.append([str(number), str(len(lines)), "", "", text])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    atomic_write_text(path, out.getvalue())
