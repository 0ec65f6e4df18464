"""Imports dialogues: of a JSON lines file, or Wordle games from the published ILQL code's pickles,
without running their code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motif_jax.core import digests
from motif_jax.core.errors import UserError
from motif_jax.core.files import atomic_write_json
from motif_jax.ilql.collect_text import DialogueTotals
from motif_jax.ilql.dialogues import dialogue_files
from motif_jax.ilql.dialogues.dialogue import Dialogue, Dialogues
from motif_jax.ilql.dialogues.dialogue_files import DIALOGUES, META
from motif_jax.ilql.tasks.wordle.environment import WordleObservation
from motif_jax.ilql.tasks.wordle.game import (
    LENGTH,
    LETTERS,
    TRIES,
    WordTable,
    colours_of,
    is_word,
    read_words,
)
from motif_jax.published.config import ImportDialoguesConfig
from motif_jax.published.pickles import Stub, read_file

# Of published Wordle games.
_GAMES = (".pkl", ".pickle")


def write(config: ImportDialoguesConfig, workdir: Path, begin: Callable[[], None]) -> None:
    """Writes the dialogues as one file. Raises UserError: the folder has others."""
    if (workdir / DIALOGUES).exists() and not (workdir / "config.json").exists():
        raise UserError(
            f"{workdir} holds dialogues that were not imported here: choose another --workdir"
        )
    begin()
    about: dict[str, Any] = {
        "origin": f"motif_jax import:dialogues, {Path(config.path).name}",
        "facts": {},
    }
    if _is_of_games(config):
        words = config.words or _list_name(read_file(Path(config.path)))
        if Path(words).is_file():
            # Absolute: trainings read it from other folders.
            words = str(Path(words).resolve())
        # Training and evaluation play with the words that the games were played with.
        about["config"] = {"task": "wordle", "wordle": {"words": words}, "compat": {}}
    totals = DialogueTotals()
    dialogue_files.write(workdir / DIALOGUES, totals.counted(_read_dialogues(config)), about)
    meta = {**about, **totals.summary(), "digest": digests.of_file(workdir / DIALOGUES)}
    # Last: `is_complete` takes this file for the end of the import.
    atomic_write_json(workdir / META, meta)
    counts = f"{meta['dialogues']:,} dialogues, {meta['actions']:,} actions"
    print(f"{workdir}: {counts}, mean return {meta['mean_return']:.3f}")


def _is_of_games(config: ImportDialoguesConfig) -> bool:
    return Path(config.path).suffix in _GAMES


def _read_dialogues(config: ImportDialoguesConfig) -> Iterator[Dialogues]:
    if _is_of_games(config):
        words = read_words("words", config.words) if config.words else None
        yield read_games(config.path, words)
    else:
        yield from dialogue_files.read_json_lines(config.path)


def read_games(path: str | os.PathLike[str], words: Sequence[str] | None = None) -> Dialogues:
    """The games of a pickle {state_actions: [{state, actions, meta?}], vocab_path, ...}, replayed
    under a list of words.

    `words` None: the list that the file names.
    """
    data = read_file(Path(path))
    table = WordTable(words or read_words("wordle.words", _list_name(data)))
    return Dialogues.of(_game(item, table) for item in data["state_actions"])


def _list_name(data: Mapping[str, Any]) -> str:
    """The name of the list of words with which the games of a pickle were played."""
    return Path(data["vocab_path"]).stem


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
        int(colours_of(state, guess) @ weights) if is_word(guess) else None for guess in guesses
    ]
    dialogue = WordleObservation(table, guesses, codes).to_sequence()
    return dialogue._replace(meta=_meta(item.get("meta") or {}))
