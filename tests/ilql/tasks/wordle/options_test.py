from __future__ import annotations

import re

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.ilql.tasks.wordle.policies import parse
from motif_jax.ilql.tasks.wordle.task import Wordle
from motif_jax.ilql.tasks.wordle.tokens import WordleTokenizer


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


def test_a_task_names_the_files_that_it_prepares(prepared):
    options, folder = prepared
    names = Wordle({"write_structure": True}).prepared_files("tweets")

    assert set(names) == set(contents(folder))
    assert Wordle(options).prepared_files("tweets") == ("tweets.json",)
    assert Wordle({}).prepared_files("games") == ()


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


PLAYERS = (
    "must be one of fitting, random, random_mixture, start, optimal, repeat, wrong, mixture, monte_carlo, such as "
    "mixture(0.4, optimal, repeat)"
)
LISTS = (
    "must be one of wordle_official_200, tweet_words, wordle_official, wordle_official_guess, wordle_official_400, "
    "wordle_official_800, or a file with a word a line"
)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("best", "best is not a player"),
        ("fitting(", "it cannot be read"),
        ("mixture(2, optimal, repeat)", "2 must be a probability"),
        ("mixture(True, optimal, repeat)", "True must be a probability"),
        ("mixture(-0.1, optimal, repeat)", "-0.1 must be a probability"),
        ("mixture(1.1, optimal, repeat)", "1.1 must be a probability"),
        ("mixture(0.5, optimal)", "mixture takes (a probability, a player, a player)"),
        ("monte_carlo(0, random)", "0 must be a number of at least 1"),
        ("monte_carlo(True, random)", "True must be a number of at least 1"),
        ("wrong(3)", "3 must be a word list in quotes"),
        ("optimal(start, start)", "optimal takes (a player (or nothing))"),
        ("optimal(start, start=1)", "optimal(start, start=1) is not a player"),
        ("optimal(__import__('os'))", "__import__('os') is not a player"),
        ("mixture(0.4, None, optimal)", "None is not a player"),
        ("monte_carlo(3, None)", "None is not a player"),
        ("random(1)", "random takes nothing"),
    ],
)
def test_a_policy_of_another_form_is_refused(policy, reason):
    with pytest.raises(
        UserError, match=re.escape(f"config.policy={policy!r}: {reason}; {PLAYERS}")
    ):
        parse(policy)


def test_a_policy_with_an_unknown_word_list_is_refused():
    with pytest.raises(UserError, match=re.escape(f"config.policy='nowhere.txt': {LISTS}")):
        parse("wrong('nowhere.txt')")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("tweets", {"tweets": "nowhere.csv"}, "config.wordle.tweets='nowhere.csv': must be an existing file"),
        ("tweets", {"indexes": "nowhere.json"}, "config.wordle.indexes='nowhere.json': must be an existing file"),
        ("tweets", {"guesses": "no"}, f"config.wordle.guesses='no': {LISTS}"),
        ("games", {"words": ""}, f"config.wordle.words='': {LISTS}"),
        ("games", {"words": "four.csv"}, f"config.wordle.words=four.csv: no five-letter word (a to z) in it; {LISTS}"),
        ("games", {"num_words": 237}, "config.wordle.num_words=237: must be at most 236, the words of the list"),
        ("chess", {"num_words": 236}, "config.kind=chess: must be one of games, branch, adversarial, tweets"),
        ("branch", {"suboptimal": "best"}, f"config.wordle.suboptimal='best': best is not a player; {PLAYERS}"),
        ("adversarial", {"adversary": "best"}, f"config.wordle.adversary='best': best is not a player; {PLAYERS}"),
    ],
)  # fmt: skip
def test_an_option_that_a_kind_cannot_use_is_refused(tmp_path, monkeypatch, kind, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "four.csv").write_text("210,,,x\n")

    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        Wordle(options).check(kind, "optimal")


@pytest.mark.parametrize("kind", Wordle.kinds)
def test_every_kind_checks_the_policy(kind):
    Wordle({"suboptimal": "wrong"}).check(kind, "optimal")

    with pytest.raises(UserError, match=r"config\.policy='best': best is not a player"):
        Wordle({}).check(kind, "best")


def test_tweets_of_a_file_need_no_policy():
    options = {"adversary": "best", "suboptimal": "best", "tweets": __file__}

    Wordle(options).check("tweets", "best")


@pytest.mark.parametrize(
    ("file", "content", "options", "message"),
    [
        ("rows.json", "[40]", {"indexes": "rows.json"}, "indexes='rows.json': must be a list of whole numbers from 0 to 39"),
        ("none.csv", "210,,,,x\n", {"tweets": "none.csv"}, "none.csv: no row of five squares in any of its texts"),
        ("four.csv", "210,,,x\n", {"tweets": "four.csv"}, "four.csv: row 1 has 4 columns, must have 5"),
        ("unused", "", {"top_p": 0.01}, "config.wordle.top_p=0.01: must be larger: this leaves no game"),
    ],
)  # fmt: skip
def test_tweets_are_refused_when_they_are_read(
    prepared, tmp_path, monkeypatch, file, content, options, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text(content)
    task = Wordle({**prepared[0], **options})
    task.check("tweets", "optimal")

    with pytest.raises(UserError, match=re.escape(message)):
        task.stream("tweets", "optimal")


@pytest.mark.parametrize("text", ["Panic", "panic!", "<g"])
def test_a_text_with_other_characters_has_no_tokens(text):
    with pytest.raises(
        ValueError, match=f"'{text}' has more than letters a to z, colours and delimiters"
    ):
        WordleTokenizer().encode(text)
