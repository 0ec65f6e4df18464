"""Parses policies such as `mixture(0.4, optimal(start), repeat)`, and turns players into
`TextPolicy` objects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.contract import FunctionPolicy, TextPolicy
from motif_jax.ilql.tasks.wordle import players
from motif_jax.ilql.tasks.wordle.boards import BoardPlayer
from motif_jax.ilql.tasks.wordle.colours import DIGITS, WordTable
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.words import read_words

# Name -> kinds of arguments (p probability, n number of at least 1, l word list, s player), those
# of optional ones, and the maker, which takes the table and the arguments.
PLAYERS: dict[str, tuple[str, str, Callable[..., BoardPlayer]]] = {
    "fitting": ("", "", lambda table: players.random_mixture(table, 1.0)),
    "random": ("", "", lambda table: players.random_mixture(table, 0.0)),
    "random_mixture": ("p", "l", players.random_mixture),
    "start": ("", "l", players.start_words),
    "optimal": ("", "s", lambda table, *arguments: players.optimal(*arguments)),
    "repeat": ("", "sn", players.repeat),
    "wrong": ("", "l", players.wrong),
    "mixture": ("pss", "", lambda table, *arguments: players.mixture(*arguments)),
    "monte_carlo": ("ns", "", lambda table, *arguments: players.monte_carlo(*arguments)),
}
_KINDS = {
    "p": "a probability",
    "n": "a number of at least 1",
    "l": "a word list in quotes",
    "s": "a player",
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


_BACKGROUNDS = (";100", "30;43", "30;42")  # absent, elsewhere, here


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
