"""Pickles of published Wordle games: read as games, and nothing of them is run."""

from __future__ import annotations

import dataclasses
import enum
import json
import pickle
import re
import sys
import types

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks import registry
from motif_jax.ilql.tasks.wordle.environment import WordleEnvironment
from motif_jax.ilql.tasks.wordle.game import ABSENT, DIGITS, HERE, WordTable, letters, read_words
from motif_jax.published import imports
from motif_jax.published.import_dialogues import read_games
from tests.reward_fixtures import load_config


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
        kind.__module__ = module.__name__
        kind.__qualname__ = kind.__name__
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "wordle", module)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def state(knowledge):
        letters_known = []
        for row in knowledge:
            letters_known.append(CharState([CharKnowledge(int(cell)) for cell in row]))
        return WordleState(letters_known)

    return state


@pytest.fixture
def games():
    """The last observations of a short game, one that is lost, and one with a guess that is no
    word.
    """
    words = read_words("words", "wordle_official_200")
    environment = WordleEnvironment(WordTable(words))
    observations = []
    for seed, guesses in enumerate((["panic", "solar", "robot"], ["sugar"] * 6, ["mount", "abc"])):
        environment.reset(np.random.default_rng(seed))
        for guess in guesses:
            outcome = environment.step(guess)
        observations.append(outcome.observation)
    return observations


def knowledge_of(observation):
    """The published state: int [26, 5], 0 not here, 1 possible, 2 here."""
    knowledge = np.ones((26, 5), int)
    for guess, code in zip(observation.guesses, observation.codes, strict=True):
        if code is None:  # the guess is no word
            continue
        for position, letter in enumerate(letters([guess])[0]):
            colour = DIGITS[code][position]
            if colour == ABSENT:
                knowledge[letter] = 0
            else:
                knowledge[letter, position] = 2 if colour == HERE else 0
    return knowledge


def write(path, items):
    data = {"state_actions": items, "vocab_path": "data/wordle/word_lists/wordle_official_200.txt"}
    path.write_bytes(pickle.dumps({**data, "vocab_cache_path": None}))


def items_of(published, games):
    """The games as a file has them, each of another kind of data."""
    items = [
        {"state": published(knowledge_of(game)), "actions": list(game.guesses)} for game in games
    ]
    start = published(np.ones((26, 5), int))
    items[0]["meta"] = {
        "kind": "expert",
        "prefixes": [(start, []), (start, ["panic"])],
        "self_actions": [],
    }
    items[1]["meta"] = {
        "kind": "branch_suboptimal",
        "start": (start, ["sugar"]),
        "self_actions": [],
    }
    items[2]["meta"] = {"kind": "adversarial", "s_2": (start, ["mount", "x"]), "a_2": "mount"}
    return items


@pytest.fixture
def read(published, games, tmp_path, monkeypatch):
    """The dialogues of a published file; the published classes are gone when it is read."""
    write(tmp_path / "games.pkl", items_of(published, games))
    monkeypatch.undo()
    return read_games(tmp_path / "games.pkl")


def test_games_have_the_texts_and_rewards_of_their_guesses(read, games):
    for dialogue, game in zip(read, games, strict=True):
        assert dialogue[:3] == game.to_sequence()[:3]


def test_games_have_their_kind_and_where_they_leave_an_expert(read):
    metas = [dict(dialogue.meta) for dialogue in read]

    assert [meta["kind"] for meta in metas] == ["expert", "branch_suboptimal", "adversarial"]
    assert [meta.get("start") for meta in metas] == [None, 1, 2]


def test_a_game_is_lost_while_several_words_fit(published, games, tmp_path):
    game = games[1]
    write(tmp_path / "g.pkl", [{"state": published(knowledge_of(game)), "actions": ["sugar"]}])

    assert read_games(tmp_path / "g.pkl")[0].rewards[0] == -1


def test_a_game_is_judged_by_the_given_words(published, games, tmp_path):
    game = games[1]
    write(tmp_path / "g.pkl", [{"state": published(knowledge_of(game)), "actions": ["sugar"]}])
    fitting = [
        word
        for word, fits in zip(game.table.words, game.fits, strict=True)
        if fits and word != "sugar"
    ]

    (dialogue,) = read_games(tmp_path / "g.pkl", [fitting[0], "zzzzz"])

    assert not dialogue.terminal


class Harm:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize(
    ("shape", "guesses", "reason"),
    [
        ((26, 4), [], "a state of shape (26, 4)"),
        ((25, 5), [], "a state of shape (25, 5)"),
        ((26, 5), ["sugar"] * 7, "a game of 7 guesses"),
    ],
)
def test_a_game_that_nobody_can_have_played_is_refused(published, tmp_path, shape, guesses, reason):
    path = tmp_path / "g.pkl"
    write(path, [{"state": published(np.ones(shape, int)), "actions": guesses}])

    with pytest.raises(ValueError, match=re.escape(reason)):
        read_games(path)


def test_nothing_of_a_file_is_run(tmp_path):
    path = tmp_path / "g.pkl"
    path.write_bytes(pickle.dumps(Harm()))

    with pytest.raises(TypeError, match="not callable"):
        read_games(path)


def test_imported_games_name_the_words_that_they_were_played_with(
    published, games, tmp_path, monkeypatch
):
    write(tmp_path / "games.pkl", items_of(published, games))
    monkeypatch.undo()
    config = load_config("import", "dialogues", {"file": str(tmp_path / "games.pkl")})

    imports.run(config, tmp_path / "run")

    collected = json.loads((tmp_path / "run" / "dialogues.json").read_text())["config"]
    assert collected["task"] == "wordle"
    assert registry.options_of(collected) == {"words": "wordle_official_200"}


def test_another_list_of_words_is_another_import(published, games, tmp_path, monkeypatch):
    words = tmp_path / "words.txt"
    words.write_text("\n".join(read_words("words", "wordle_official_200")))
    write(tmp_path / "games.pkl", items_of(published, games))
    monkeypatch.undo()
    values = {"file": str(tmp_path / "games.pkl"), "words": str(words)}
    imports.run(load_config("import", "dialogues", values), tmp_path / "run")

    # The same file by another path is the same import.
    monkeypatch.chdir(tmp_path)
    by_name = load_config("import", "dialogues", {**values, "words": "words.txt"})
    imports.check(by_name, tmp_path / "run")
    words.write_text(f"{words.read_text()}\nzzzzz\n")
    with pytest.raises(UserError, match="holds another import"):
        imports.check(by_name, tmp_path / "run")
