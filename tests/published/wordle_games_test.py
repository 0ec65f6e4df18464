"""Pickles of published Wordle games: read as games, and nothing of them is run."""

from __future__ import annotations

import dataclasses
import enum
import pickle
import sys
import types

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle.colours import ABSENT, DIGITS, HERE, WordTable, letters
from motif_jax.ilql.tasks.wordle.environment import WordleEnvironment
from motif_jax.ilql.tasks.wordle.words import read_words
from motif_jax.published.wordle_games import read_games
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text


@pytest.fixture
def published(monkeypatch):
    """Classes by the published names, in modules that are there only while a file is written."""

    class CharKnowledge(enum.Enum):
        NOT_HERE = 0
        POSSIBLE = 1
        HERE = 2

        def __reduce_ex__(self, protocol):
            return type(self), (self.value,)

    @dataclasses.dataclass
    class CharState:
        position_knowledge: list

    class WordleState:
        def __init__(self, state):
            self.state = state

    module = types.ModuleType("wordle.wordle_game")
    for kind in (CharKnowledge, CharState, WordleState):
        kind.__module__, kind.__qualname__ = module.__name__, kind.__name__
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "wordle", module)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def state(known):
        return WordleState([CharState([CharKnowledge(int(cell)) for cell in row]) for row in known])

    return state


@pytest.fixture
def games():
    words = read_words("words", "wordle_official_200")
    environment, played = WordleEnvironment(WordTable(words)), []
    for seed, guesses in enumerate((["panic", "solar", "robot"], ["sugar"] * 6, ["mount", "abc"])):
        environment.reset(np.random.default_rng(seed))
        for guess in guesses:
            outcome = environment.step(guess)
        played.append(outcome.observation)
    return played


def known(observation):
    """The published state: int [26, 5], 0 not here, 1 possible, 2 here."""
    found = np.ones((26, 5), int)
    for guess, code in zip(observation.guesses, observation.codes, strict=True):
        for place, letter in enumerate(letters([guess])[0] if code is not None else ()):
            colour = DIGITS[code][place]
            found[letter, slice(None) if colour == ABSENT else place] = 2 * (colour == HERE)
    return found


def write(path, items):
    data = {"state_actions": items, "vocab_path": "data/wordle/word_lists/wordle_official_200.txt"}
    path.write_bytes(pickle.dumps({**data, "vocab_cache_path": None}))


def test_games_come_back(published, games, tmp_path, monkeypatch):
    items = [{"state": published(known(o)), "actions": list(o.guesses)} for o in games]
    shared = published(np.ones((26, 5), int))
    items[0]["meta"] = {"kind": "expert", "prefixes": [(shared, []), (shared, ["panic"])], "self_actions": []}
    items[1]["meta"] = {"kind": "branch_suboptimal", "start": (shared, ["sugar"]), "self_actions": []}
    items[2]["meta"] = {"kind": "adversarial", "s_2": (shared, ["mount", "x"]), "a_2": "mount"}
    write(tmp_path / "games.pkl", items)
    monkeypatch.undo()
    read = read_games(tmp_path / "games.pkl")
    for dialogue, observation in zip(read, games, strict=True):
        assert dialogue[:3] == observation.to_sequence()[:3]
    metas = [dict(dialogue.meta) for dialogue in read]
    assert [meta["kind"] for meta in metas] == ["expert", "branch_suboptimal", "adversarial"]
    assert [meta.get("start") for meta in metas] == [None, 1, 2]


def test_another_list_judges_anew(published, games, tmp_path):
    """Under a list with one word that fits, the same game is won."""
    observation = games[1]
    write(tmp_path / "g.pkl", [{"state": published(known(observation)), "actions": ["sugar"]}])
    assert read_games(tmp_path / "g.pkl")[0].rewards[0] == -1
    hidden = next(w for w, fits in zip(observation.table.words, observation.fits) if fits and w != "sugar")
    assert not read_games(tmp_path / "g.pkl", [hidden, "zzzzz"])[0].terminal


class Harm:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def test_games_that_none_can_have_played_and_files_that_are_something_else(published, tmp_path, record):
    few, most = (published(np.ones(shape, int)) for shape in ((26, 4), (26, 5)))
    path, lines = tmp_path / "g.pkl", []
    for state, actions in ((few, []), (most, ["sugar"] * 7), (most, [5])):
        write(path, [{"state": state, "actions": actions}])
        lines += [outcome_text(read_games, path, folder=tmp_path)]
    others = [1], Harm(), {"state_actions": [], "vocab_path": "mine.txt"}
    for content in (b"", b"no pickle", *map(pickle.dumps, others)):
        path.write_bytes(content)
        lines += [outcome_text(read_games, path, folder=tmp_path)]
    assert_matches_packed_recording("published_games", {"lines": "\n".join(lines)}, record)
