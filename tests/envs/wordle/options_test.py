"""The task's options: people who tweet, files of their tweets, and what of them is used."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs.wordle.task import Wordle
from motif_jax.support.errors import UserError
from tests.envs.playing import refused


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The options of tweets by simulated people, and the folder that holds them."""
    folder = tmp_path_factory.mktemp("tweets")
    task = Wordle({"simulated": 40, "write_structure": True})
    return task.prepare("tweets", "fitting", folder), folder


def test_simulated_people_tweet_once(prepared):
    options, folder = prepared
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == {"tweets.csv", "tweets.json"}
    assert Wordle({"simulated": 9}).prepare("tweets", "random", folder)["tweets"] == options["tweets"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    plain = Wordle({"tweets": options["tweets"]}).prepare("tweets", "best", folder / "x")
    assert plain == {**Wordle.defaults, "tweets": options["tweets"]}
    games, guesses = Wordle(options).read_tweets()
    again, read = Wordle({"tweets": str(folder / "tweets.json")}).read_tweets()
    assert (len(games), games, guesses.to_json()) == (40, again, read.to_json())
    assert Wordle({}).prepare("games", "fitting", folder) == Wordle({}).options


def test_games_of_tweets_are_drawn_from_those_that_are_chosen(prepared, tmp_path):
    (tmp_path / "rows.json").write_text("[3, 0]")
    for more, count in (({}, 40), ({"top_p": 0.5}, 20), ({"indexes": str(tmp_path / "rows.json")}, 2)):
        task = Wordle({**prepared[0], **more})
        assert task.facts("tweets") == {"words": 236}
        drawn = task.stream("tweets", "")(np.random.default_rng(0), 30, 0)
        assert (len(drawn), task.facts("tweets")["games"]) == (30, count)
        assert task.facts("games") == {"words": 236}
        assert {dialogue.terminal for dialogue in drawn} == {True}
    assert Wordle({"words": "wordle_official_guess"}).at_a_time("games") == (1 << 22) // 12_972
    assert Wordle({}).at_a_time("games") == 1024


LISTS = "wordle_official_200, tweet_words, wordle_official, wordle_official_guess, wordle_official_400, wordle_official_800"


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("tweets", {"tweets": "nowhere.csv"}, "wordle.tweets='nowhere.csv': must be an existing file"),
        ("tweets", {"indexes": "nowhere.json"}, "wordle.indexes='nowhere.json': must be an existing file"),
        ("tweets", {"guesses": "no"}, f"wordle.guesses='no': must be one of {LISTS}, or a file with a word a line"),
        ("games", {"words": ""}, f"wordle.words='': must be one of {LISTS}, or a file with a word a line"),
        ("games", {"num_words": 237}, "wordle.num_words=237: must be at most 236, the words of the list"),
        ("chess", {"num_words": 236}, "kind=chess: must be one of games, branch, adversarial, tweets"),
        ("branch", {"suboptimal": "best"}, "wordle.suboptimal='best': best is not a player; must be one of fitting"),
        ("adversarial", {"adversary": "best"}, "wordle.adversary='best': best is not a player; must be one of"),
    ],
)  # fmt: skip
def test_options_that_are_refused(kind, options, said):
    assert refused("wordle", options, kind, "optimal").startswith(f"config.{said}")
    for kind in Wordle.kinds:
        assert refused("wordle", {}, kind, "best").startswith("config.policy='best': best is not a player;")
        Wordle({"suboptimal": "wrong"}).check(kind, "optimal")
    Wordle({"adversary": "best", "suboptimal": "best", "tweets": __file__}).check("tweets", "best")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_p": 0.01}, "config.wordle.top_p=0.01: must be larger: this leaves no game"),
        ({"indexes": "rows.json"}, "config.wordle.indexes='rows.json': must be a list of whole numbers from 0 to 39"),
        ({"tweets": "none.csv"}, "none.csv: no row of five squares in any of its texts"),
        ({"tweets": "four.csv"}, "four.csv: row 1 has 4 columns, must have 5"),
    ],
)  # fmt: skip
def test_tweets_that_are_refused(prepared, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    for name, text in (("rows.json", "[40]"), ("none.csv", "210,,,,x\n"), ("four.csv", "210,,,x\n")):
        (tmp_path / name).write_text(text)
    task = Wordle({**prepared[0], **options})
    task.check("tweets", "optimal")
    with pytest.raises(UserError) as error:
        task.stream("tweets", "optimal")
    assert str(error.value) == said
