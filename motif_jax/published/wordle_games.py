"""Reads Wordle games from the published ILQL code's pickles without running their code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
from motif_jax.published.pickles import Stub, read_file, reading

_DESCRIPTION = "a pickle of published Wordle games"


def _number(knowledge: Any) -> int:
    """What is known of a letter at a place: 0 not here, 1 possible, 2 here."""
    # An enumeration's entry is pickled as a call of its class with its number.
    return int(knowledge.arguments[0] if isinstance(knowledge, Stub) else knowledge)


def _state(state: Stub) -> np.ndarray:
    """The knowledge in a published state, int8 [26, 5]."""
    rows = [
        [_number(knowledge) for knowledge in letter.state["position_knowledge"]]
        for letter in state.state["state"]
    ]
    table = np.array(rows, np.int8)
    if table.shape != (len(LETTERS), LENGTH) or not np.isin(table, (0, 1, 2)).all():
        raise ValueError(f"a state of shape {table.shape}")
    return table


def _meta(published: Mapping[str, Any]) -> dict[str, Any]:
    """A game's kind, and the guess with which it leaves an expert's game; the games contain their
    histories.
    """
    meta: dict[str, Any] = {}
    if "kind" in published:
        meta["kind"] = published["kind"]
    if "start" in published:
        meta["start"] = len(published["start"][1])
    elif meta.get("kind") in ("adversarial", "suboptimal"):
        # The state before the third guess, or before the first.
        state = "s_2" if "s_2" in published else "s_0"
        meta["start"] = len(published[state][1])
    return meta


def _game(item: Mapping[str, Any], table: WordTable) -> Dialogue:
    if len(item["actions"]) > TRIES:
        raise ValueError(f"a game of {len(item['actions'])} guesses")
    state = _state(item["state"])
    guesses = list(item["actions"])
    # The colours of a guess as one number, in base 3.
    weights = 3 ** np.arange(LENGTH)
    codes = [
        int(knowledge.colours(state, guess) @ weights) if is_word(guess) else None
        for guess in guesses
    ]
    dialogue = WordleObservation(table, guesses, codes).to_sequence()
    return dialogue._replace(meta=_meta(item.get("meta") or {}))


def read_games(path: str | os.PathLike[str], words: Sequence[str] | None = None) -> Dialogues:
    """The games of a pickle {state_actions: [{state, actions, meta?}], vocab_path, ...}, replayed
    under a list of words.

    `words` None: the list that the file names.

    Raises:
      UserError: the file cannot be read, has another form, or names an unknown list.
    """
    path = Path(path)
    data = _read(path)
    if words is None:
        words = read_words("wordle.words", _word_list(path, data))
    table = WordTable(words)
    with reading(path, _DESCRIPTION):
        return Dialogues.of(_game(item, table) for item in data["state_actions"])


def word_list(path: str | os.PathLike[str]) -> str:
    """The name of the list of words with which the games of a pickle were played. Raises UserError
    as `read_games`.
    """
    return _word_list(Path(path), _read(Path(path)))


def _read(path: Path) -> Mapping[str, Any]:
    with reading(path, _DESCRIPTION):
        data = read_file(path)
        return {"state_actions": data["state_actions"], "vocab_path": data["vocab_path"]}


def _word_list(path: Path, data: Mapping[str, Any]) -> str:
    name = Path(data["vocab_path"]).stem
    if name not in NAMES:
        raise UserError(
            f"{path} was made with the list {name!r}, which is not among {', '.join(NAMES)}"
        )
    return name
