from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle.environment import WordleTokenizer
from motif_jax.ilql.tasks.wordle.task import Wordle


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The options of tweets by simulated people, and the folder that holds them."""
    folder = tmp_path_factory.mktemp("tweets")
    task = Wordle({"simulated": 40, "write_structure": True})
    return task.prepare("tweets", "fitting", folder), folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_simulated_people_tweet_once(prepared):
    options, folder = prepared
    before = contents(folder)

    again = Wordle({"simulated": 9}).prepare("tweets", "random", folder)

    assert set(before) == {"tweets.csv", "tweets.json"}
    assert again["tweets"] == options["tweets"]
    assert contents(folder) == before


def test_tweets_of_a_user_are_taken_as_they_are(prepared, tmp_path):
    options = {"tweets": prepared[0]["tweets"]}

    assert Wordle(options).prepare("tweets", "best", tmp_path / "x") == {
        **Wordle.defaults,
        **options,
    }


def test_the_structure_has_the_games_of_the_tweets(prepared):
    options, folder = prepared
    games, guesses = Wordle(options).read_tweets()

    games_of_structure, guesses_of_structure = Wordle(
        {"tweets": str(folder / "tweets.json")}
    ).read_tweets()

    assert len(games) == 40
    assert games_of_structure == games
    assert guesses_of_structure.to_json() == guesses.to_json()


def test_games_that_are_played_need_no_file(tmp_path):
    assert Wordle({}).prepare("games", "fitting", tmp_path) == Wordle({}).options
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("options", "games"), [({}, 40), ({"top_p": 0.5}, 20), ({"indexes": "rows.json"}, 2)]
)
def test_games_are_drawn_from_the_chosen_tweets(prepared, tmp_path, monkeypatch, options, games):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.json").write_text("[3, 0]")
    task = Wordle({**prepared[0], **options})
    assert task.facts("tweets") == {"words": 236}

    dialogues = task.stream("tweets", "")(np.random.default_rng(0), 30, 0)

    assert len(dialogues) == 30
    assert {dialogue.terminal for dialogue in dialogues} == {True}
    assert task.facts("tweets")["games"] == games
    assert task.facts("games") == {"words": 236}


def test_fewer_games_are_drawn_together_with_more_words():
    assert Wordle({}).dialogues_per_draw("games") == 1024
    # Bytes of a chunk over words of the list.
    assert (
        Wordle({"words": "wordle_official_guess"}).dialogues_per_draw("games")
        == (1 << 22) // 12_972
    )


def test_tweets_of_a_file_need_no_policy():
    options = {"adversary": "best", "suboptimal": "best", "tweets": __file__}

    Wordle(options).check("tweets", "best")


@pytest.mark.parametrize("text", ["Panic", "panic!", "<g"])
def test_a_text_with_other_characters_has_no_tokens(text):
    with pytest.raises(
        ValueError, match=f"'{text}' has more than letters a to z, colours and delimiters"
    ):
        WordleTokenizer().encode(text)
