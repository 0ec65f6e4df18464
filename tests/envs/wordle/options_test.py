"""The task's options: people who tweet, files of their tweets, and what of them is used."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.envs.wordle.task import Wordle
from motif_jax.support.errors import UserError


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tweets": "nowhere.csv"}, "tweets='nowhere.csv': must be an existing file"),
        ({"guesses": "nowhere"}, "guesses='nowhere': must be one of wordle_official_200"),
        ({"top_p": 0.01}, "top_p=0.01: must be larger: this leaves no game"),
        ({"indexes": "rows.json"}, "indexes="),
    ],
)
def test_options_that_are_refused(prepared, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.json").write_text("[40]")

    def drawn():
        task = Wordle({**prepared[0], **options})
        task.check("tweets", "optimal")
        return task.stream("tweets", "optimal")

    with pytest.raises(UserError, match=rf"^config\.wordle\.{said}"):
        drawn()
