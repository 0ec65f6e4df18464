"""The published policies of Wordle, many boards at a time (Snell et al. 2022).

All draw words of the table, with the generator as the only source of randomness. The expert's
criterion is a guess's information about the words that still fit. `parse` reads policies such as
`mixture(0.4, optimal(start), repeat)`, and `policy_of` turns players into `TextPolicy` objects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.contract import FunctionPolicy, TextPolicy
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.game import (
    DIGITS,
    NUM_CODES,
    START_WORDS,
    BoardPlayer,
    Boards,
    WordTable,
    pick,
    play,
    read_words,
    returns,
)

# Size of the cache of positions' best words, which drops the oldest.
_MAX_POSITIONS = 200_000
# Closer gains count as equal: they differ by the order of summation only.
TIE = 1e-9
_BLOCK = 1 << 22
_KINDS = {
    "p": "a probability",
    "n": "a number of at least 1",
    "l": "a word list in quotes",
    "s": "a player",
}
_BACKGROUNDS = (";100", "30;43", "30;42")  # absent, elsewhere, here


def information_gain(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Expected entropy reduction over the fitting words `members` int [n], in nats, by guessing
    each: float64 [n].

    log n - sum over codes of (n_code / n) log n_code, for equally likely words (Snell et al. 2022,
    the optimal policy), by `table`, codes uint8 [words, words].
    """
    count = len(members)
    sizes = np.arange(1, count + 1)
    weights = np.concatenate([[0.0], sizes * np.log(sizes)])  # n log n
    gains = np.empty(count)
    block = max(1, _BLOCK // max(count, NUM_CODES))
    for start in range(0, count, block):
        rows = members[start : start + block]
        # At the first guess all words fit, and no columns have to be picked.
        codes = table[rows] if count == len(table) else table[rows[:, None], members]
        # A histogram of codes for each guess, by one count over all of them: [block, 243].
        flat = codes + (np.arange(len(codes)) * NUM_CODES)[:, None]
        counts = np.bincount(flat.ravel(), minlength=len(codes) * NUM_CODES)
        several = np.flatnonzero(counts > 1)  # codes with at most one word add nothing
        lost = np.bincount(several // NUM_CODES, weights[counts[several]], len(codes))
        gains[start : start + block] = np.log(count) - lost / count
    return gains


def best_words(table: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The fitting words with the most information, int [at least 1]."""
    gains = information_gain(table, members)
    return members[gains >= gains.max() - TIE]


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


# Name -> kinds of arguments (p probability, n number of at least 1, l word list, s player), those
# of optional ones, and the maker, which takes the table and the arguments.
PLAYERS: dict[str, tuple[str, str, Callable[..., BoardPlayer]]] = {
    "fitting": ("", "", lambda table: random_mixture(table, 1.0)),
    "random": ("", "", lambda table: random_mixture(table, 0.0)),
    "random_mixture": ("p", "l", random_mixture),
    "start": ("", "l", start_words),
    "optimal": ("", "s", lambda table, *arguments: optimal(*arguments)),
    "repeat": ("", "sn", repeat),
    "wrong": ("", "l", wrong),
    "mixture": ("pss", "", lambda table, *arguments: mixture(*arguments)),
    "monte_carlo": ("ns", "", lambda table, *arguments: monte_carlo(*arguments)),
}


class Plan:
    """A player as a config describes it: one of `PLAYERS`, and its arguments, which are numbers,
    word lists or plans.

    `lists` are the words that it and its parts may guess in addition to the game's.
    """

    def __init__(self, name: str, arguments: Sequence[Any]) -> None:
        self.name = name
        self.arguments = tuple(arguments)
        self.lists: tuple[str, ...] = ()
        for argument in self.arguments:
            if isinstance(argument, Plan):
                self.lists += argument.lists
            # Start words are guessed only where they fit, so that they are words of the game.
            elif isinstance(argument, tuple) and name != "start":
                self.lists += argument

    def player(self, table: WordTable) -> BoardPlayer:
        arguments = [
            argument.player(table) if isinstance(argument, Plan) else argument
            for argument in self.arguments
        ]
        _, _, make = PLAYERS[self.name]
        return make(table, *arguments)


def parse(text: str, key: str = "policy") -> Plan:
    """Parses a player. Raises UserError: the text has another form; the error names the allowed
    ones.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(key, text, "it cannot be read") from None
    return _plan(tree, text, key)


def _plan(tree: ast.expr, text: str, key: str) -> Plan:
    call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
    if not isinstance(call.func, ast.Name) or call.keywords or call.func.id not in PLAYERS:
        raise _wrong(key, text, f"{ast.unparse(tree)} is not a player")
    needed, optional, _ = PLAYERS[call.func.id]
    kinds = needed + optional
    if not len(needed) <= len(call.args) <= len(kinds):
        words = [
            *(_KINDS[kind] for kind in needed),
            *(f"{_KINDS[kind]} (or nothing)" for kind in optional),
        ]
        form = f"({', '.join(words)})" if words else "nothing"
        raise _wrong(key, text, f"{call.func.id} takes {form}")
    arguments: list[Any] = []
    # Optional arguments may be left out.
    for number, (kind, argument) in enumerate(zip(kinds, call.args, strict=False)):
        is_none = isinstance(argument, ast.Constant) and argument.value is None
        is_optional_player = number >= len(needed) and kind == "s"
        if is_none and is_optional_player:
            arguments.append(None)
        else:
            arguments.append(_argument(kind, argument, text, key))
    return Plan(call.func.id, arguments)


def _argument(kind: str, argument: ast.expr, text: str, key: str) -> Any:
    if kind == "s":
        return _plan(argument, text, key)
    value = argument.value if isinstance(argument, ast.Constant) else None
    if kind == "l" and isinstance(value, str):
        return read_words(key, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "p" and is_number and 0 <= value <= 1:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    if kind == "n" and isinstance(value, int) and is_number and value >= 1:
        return value
    raise _wrong(key, text, f"{ast.unparse(argument)} must be {_KINDS[kind]}")


def _wrong(key: str, text: str, why: str) -> UserError:
    return UserError(
        f"config.{key}={text!r}: {why}; must be one of {', '.join(PLAYERS)}, such as mixture(0.4, optimal, repeat)"
    )


def policy_of(player: BoardPlayer, table: WordTable) -> TextPolicy:
    """A player of boards of `table` as a policy of one game, whose own table may lack words that
    may only be guessed.
    """

    def choose_word(observation: WordleObservation, rng: np.random.Generator) -> str:
        # By this table, in which a guess has its codes over the added words, too.
        board = WordleObservation(table, observation.guesses, observation.codes).board()
        return table.words[int(player(board, np.zeros(1, np.int64), rng)[0])]

    return FunctionPolicy(choose_word)


def picture(guesses: Sequence[str], codes: Sequence[int | None]) -> str:
    """The guesses of a game in their colours, for a terminal."""
    lines = []
    for guess, code in zip(guesses, codes, strict=True):
        if code is None:
            lines.append(guess)
            continue
        cells = zip(guess.upper(), DIGITS[code], strict=True)
        lines.append(
            "".join(f"\x1b[{_BACKGROUNDS[colour]}m {letter} \x1b[0m" for letter, colour in cells)
        )
    return "\n".join(lines) or "(nothing guessed yet)"
