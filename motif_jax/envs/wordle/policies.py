"""Parses policies such as `mixture(0.4, optimal(start), repeat)`, and turns players into `TextPolicy` objects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from motif_jax.envs.text.contract import TextPolicy
from motif_jax.envs.wordle import players
from motif_jax.envs.wordle.boards import BoardPlayer
from motif_jax.envs.wordle.colours import DIGITS, WordTable
from motif_jax.envs.wordle.environment import WordleObservation
from motif_jax.envs.wordle.words import START_WORDS, read_words
from motif_jax.support.errors import UserError

# Name -> kinds of arguments: p probability, n number of at least 1, l word list, s player; optional ones in brackets.
FORMS = {
    "fitting": "",
    "random": "",
    "random_mixture": "p[l]",
    "start": "[l]",
    "optimal": "[s]",
    "repeat": "[sn]",
    "wrong": "[l]",
    "mixture": "pss",
    "monte_carlo": "ns",
}
_KINDS = {"p": "a probability", "n": "a number of at least 1", "l": "a word list in quotes", "s": "a player"}


class Plan:
    """A player as a config describes it.

    Attributes:
      name: one of `FORMS`.
      arguments: numbers, word lists or plans.
      lists: all words that it and its parts may guess in addition to the game's.
    """

    def __init__(self, name: str, arguments: Sequence[Any]) -> None:
        self.name, self.arguments = name, tuple(arguments)
        self.lists: tuple[str, ...] = ()
        for argument in self.arguments:
            self.lists += argument.lists if isinstance(argument, Plan) else ()
            self.lists += argument if isinstance(argument, tuple) and name != "start" else ()

    def player(self, table: WordTable) -> BoardPlayer:
        given = [a.player(table) if isinstance(a, Plan) else a for a in self.arguments]
        if self.name == "fitting":
            return players.RandomMixture(table, 1.0)
        if self.name == "random":
            return players.RandomMixture(table, 0.0)
        if self.name == "start":
            words: Any = given[0] if given else read_words("policy", START_WORDS)
            return players.StartWords(table, words)
        made: dict[str, Callable[..., BoardPlayer]] = {
            "random_mixture": lambda *a: players.RandomMixture(table, *a),
            "repeat": lambda *a: players.Repeat(table, *a),
            "wrong": lambda *a: players.Wrong(table, *a),
            "optimal": players.Optimal,
            "mixture": players.Mixture,
            "monte_carlo": players.MonteCarlo,
        }
        return made[self.name](*given)


def parse(text: str, key: str = "policy") -> Plan:
    """Parses a player. Raises UserError: the text has another form; the error names the allowed ones."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(key, text, "it cannot be read") from None
    return _plan(tree, text, key)


def _plan(tree: ast.expr, text: str, key: str) -> Plan:
    call = tree if isinstance(tree, ast.Call) else ast.Call(func=tree, args=[], keywords=[])
    if not isinstance(call.func, ast.Name) or call.keywords or call.func.id not in FORMS:
        raise _wrong(key, text, f"{ast.unparse(tree)} is not a player")
    form = FORMS[call.func.id]
    needed, _, optional = form.rstrip("]").partition("[")
    kinds = needed + optional
    if not len(needed) <= len(call.args) <= len(kinds):
        raise _wrong(key, text, f"{call.func.id} takes {_form(call.func.id)}")
    arguments = [_argument(kind, given, text, key) for kind, given in zip(kinds, call.args, strict=False)]
    return Plan(call.func.id, arguments)


def _argument(kind: str, given: ast.expr, text: str, key: str) -> Any:
    if kind == "s":
        if isinstance(given, ast.Constant) and given.value is None:
            return None
        return _plan(given, text, key)
    value = given.value if isinstance(given, ast.Constant) else None
    if kind == "l" and isinstance(value, str):
        return read_words(key, value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "p" and number and 0 <= value <= 1:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    if kind == "n" and isinstance(value, int) and number and value >= 1:
        return value
    raise _wrong(key, text, f"{ast.unparse(given)} must be {_KINDS[kind]}")


def _form(name: str) -> str:
    needed, _, optional = FORMS[name].rstrip("]").partition("[")
    words = [*(_KINDS[kind] for kind in needed), *(f"{_KINDS[kind]} (or nothing)" for kind in optional)]
    return f"({', '.join(words)})" if words else "nothing"


def _wrong(key: str, text: str, why: str) -> UserError:
    return UserError(
        f"config.{key}={text!r}: {why}; must be one of {', '.join(FORMS)}, such as mixture(0.4, optimal, repeat)"
    )


class PlayerPolicy(TextPolicy):
    """A player of boards as a policy of one game."""

    def __init__(self, player: BoardPlayer) -> None:
        self._player = player

    def act(self, observation: WordleObservation, rng: np.random.Generator) -> str:
        chosen = self._player.choose(observation.board(), np.zeros(1, np.int64), rng)
        return observation.table.words[int(chosen[0])]


_BACKGROUNDS = (";100", "30;43", "30;42")  # absent, elsewhere, here


def picture(observation: WordleObservation) -> str:
    """The guesses so far in their colours, for a terminal."""
    lines = []
    for guess, code in zip(observation.guesses, observation.codes, strict=True):
        if code is None:
            lines.append(guess)
            continue
        cells = zip(guess.upper(), DIGITS[code], strict=True)
        lines.append("".join(f"\x1b[{_BACKGROUNDS[colour]}m {letter} \x1b[0m" for letter, colour in cells))
    return "\n".join(lines) or "(nothing guessed yet)"
