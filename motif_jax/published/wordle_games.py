"""Reads Wordle games from the published ILQL code's pickles without running their code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core.errors import UserError
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.tasks.wordle import knowledge
from motif_jax.ilql.tasks.wordle.boards import TRIES
from motif_jax.ilql.tasks.wordle.colours import WordTable
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.words import LENGTH, LETTERS, NAMES, is_word, read_words
from motif_jax.published.pickles import Filled, PickleReader, read_file, reading

_MODULE = "wordle.wordle_game"
_MOST_BYTES = 8 << 30
_WHAT = "a pickle of published Wordle games"


class _Object(Filled):
    """A state, or the knowledge of one letter."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def take(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError("an object that is not filled by a dictionary")
        self.held = state


# A pickle may have an endless tree in place of a text or number, which numpy and str() would follow.
def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} in place of a text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"a {type(value).__name__} in place of a number")
    return value


def _known(state: Any) -> np.ndarray:
    """The knowledge in a published state, int8 [26, 5]."""
    letters = state.held["state"]
    if len(letters) != len(LETTERS):
        raise ValueError(f"a state of {len(letters)} letters")
    rows = [[_number(place) for place in letter.held["position_knowledge"]] for letter in letters]
    found = np.array(rows, np.int8)
    if found.shape != (len(LETTERS), LENGTH) or not np.isin(found, (0, 1, 2)).all():
        raise ValueError(f"a state of shape {found.shape}")
    return found


def _meta(given: Mapping[str, Any]) -> dict[str, Any]:
    """A game's kind, and the guess with which it leaves an expert's game; the games contain their histories."""
    found: dict[str, Any] = {"kind": _text(given["kind"])} if "kind" in given else {}
    if "start" in given:
        found["start"] = len(given["start"][1])
    elif found.get("kind") in ("adversarial", "suboptimal"):
        found["start"] = len(given["s_2" if "s_2" in given else "s_0"][1])
    return found


def _game(item: Mapping[str, Any], table: WordTable) -> Dialogue:
    if len(item["actions"]) > TRIES:
        raise ValueError(f"a game of {len(item['actions'])} guesses")
    known, guesses = _known(item["state"]), [_text(guess) for guess in item["actions"]]
    weights = 3 ** np.arange(LENGTH)
    codes = [int(knowledge.colours(known, guess) @ weights) if is_word(guess) else None for guess in guesses]
    dialogue = WordleObservation(table, guesses, codes).to_sequence()
    return dialogue._replace(meta=_meta(item.get("meta") or {}))


def read_games(path: str | os.PathLike[str], words: Sequence[str] | None = None) -> Dialogues:
    """The games of a pickle {state_actions: [{state, actions, meta?}], vocab_path, ...}, replayed under a list of words.

    `words` None: the list that the file names.

    Raises:
      UserError: the file cannot be read, has another form, or names an unknown list.
    """
    path = Path(path)
    calls: dict[str, Callable[..., Any]] = {
        f"{_MODULE}.{name}": _Object for name in ("WordleState", "CharState")
    }
    calls[f"{_MODULE}.CharKnowledge"] = _number
    with reading(path, _WHAT):
        data = read_file(path, _MOST_BYTES, PickleReader(calls))
        items, listed = list(data["state_actions"]), Path(_text(data["vocab_path"])).stem
    if words is None:
        if listed not in NAMES:
            raise UserError(
                f"{path} was made with the list {listed!r}, which is not among {', '.join(NAMES)}"
            )
        words = read_words("wordle.words", listed)
    table = WordTable(words)
    with reading(path, _WHAT):
        return Dialogues.of(_game(item, table) for item in items)
