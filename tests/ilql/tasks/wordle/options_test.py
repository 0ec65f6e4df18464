from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle.policies import parse
from motif_jax.ilql.tasks.wordle.task import Wordle
from motif_jax.ilql.tasks.wordle.tokens import WordleTokenizer
from tests.envs.playing import refused, told
from tests.recorded_outputs import assert_matches_packed_recording


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The options of tweets by simulated people, and the folder that holds them."""
    folder, task = tmp_path_factory.mktemp("tweets"), Wordle({"simulated": 40, "write_structure": True})
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


POLICIES = (
    "best",
    "fitting(",
    "mixture(2, optimal, repeat)",
    "mixture(True, optimal, repeat)",
    "mixture(-0.1, optimal, repeat)",
    "mixture(1.1, optimal, repeat)",
    "mixture(0.5, optimal)",
    "monte_carlo(0, random)",
    "monte_carlo(True, random)",
    "wrong(3)",
    "optimal(start, start)",
    "optimal(start, start=1)",
    "optimal(__import__('os'))",
    "wrong('nowhere.txt')",
    "random(1)",
)
CHECKED = [
    ("tweets", {"tweets": "nowhere.csv"}),
    ("tweets", {"indexes": "nowhere.json"}),
    ("tweets", {"guesses": "no"}),
    ("games", {"words": ""}),
    ("games", {"words": "four.csv"}),
    ("games", {"num_words": 237}),
    ("chess", {"num_words": 236}),
    ("branch", {"suboptimal": "best"}),
    ("adversarial", {"adversary": "best"}),
]
READ = {"top_p": 0.01}, {"indexes": "rows.json"}, {"tweets": "none.csv"}, {"tweets": "four.csv"}


def test_what_is_refused_is_told_in_one_line(prepared, tmp_path, monkeypatch, record):
    monkeypatch.chdir(tmp_path)
    for name, text in (("rows.json", "[40]"), ("none.csv", "210,,,,x\n"), ("four.csv", "210,,,x\n")):
        (tmp_path / name).write_text(text)
    said = {f"{kind} {options}": refused("wordle", options, kind, "optimal") for kind, options in CHECKED}
    said |= {f"{kind} best": refused("wordle", {}, kind, "best") for kind in Wordle.kinds}
    said |= {policy: told(parse, policy) for policy in POLICIES}
    said |= {f"text {text}": told(WordleTokenizer().encode, text) for text in ("Panic", "panic!", "<g")}
    for options in READ:
        task = Wordle({**prepared[0], **options})
        task.check("tweets", "optimal")
        said[str(options)] = told(task.stream, "tweets", "optimal")
    assert_matches_packed_recording("wordle_refusals", said, record)
    for kind in Wordle.kinds:
        Wordle({"suboptimal": "wrong"}).check(kind, "optimal")
    Wordle({"adversary": "best", "suboptimal": "best", "tweets": __file__}).check("tweets", "best")
