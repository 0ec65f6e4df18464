"""Tweets: reading and writing them, and games that have their colours, drawn exactly."""

from __future__ import annotations

import collections
import itertools
import json

import numpy as np
import pytest

from motif_jax.envs.wordle import tweets
from motif_jax.envs.wordle.colours import CODE_TEXTS, CODES, WordTable
from motif_jax.envs.wordle.policies import parse
from motif_jax.envs.wordle.tweets import Guesses, Tweet, TweetGames
from motif_jax.envs.wordle.words import read_words
from motif_jax.support.errors import UserError

WORDS = ["panic", "solar", "shire", "proxy"]
GUESSES = [*WORDS, "point", "robot", "sugar", "light", "those"]
DAYS = read_words("days", "tweet_words")


def code(guess, word):
    return int(WordTable([guess, word]).table[0, -1])


def test_simulated_tweets_are_read_as_they_were_played(tmp_path):
    table = WordTable(DAYS)
    player = parse("mixture(0.5, fitting, random)").player(table)
    tweets.simulate(tmp_path / "t.csv", DAYS, table, player, 300, np.random.default_rng(0))
    games = tweets.read_csv(tmp_path / "t.csv", DAYS)
    assert len(games) == 300
    assert len({game.word for game in games}) > 30
    for word, codes in games:
        rows = table.table[:, table.index[word]]
        assert all((rows == row).any() for row in codes)
        assert (242 in codes) == (codes[-1] == 242)
        assert codes[-1] == 242 or len(codes) == 6


def test_the_published_structure_there_and_back(tmp_path):
    guesses = Guesses.of(WORDS, GUESSES)
    games = [Tweet("panic", (code("solar", "panic"), 242)), Tweet("proxy", (code("robot", "proxy"),))]
    tweets.write_structure(tmp_path / "t.json", games, guesses)
    data = json.loads((tmp_path / "t.json").read_text())
    assert data["games"] == [[game.word, [str(CODE_TEXTS[c]) for c in game.codes]] for game in games]
    for word, guess in itertools.product(WORDS, GUESSES):
        assert guess in data["transitions"][word][str(CODE_TEXTS[code(guess, word)])]
    assert sum(len(g) for rows in data["transitions"].values() for g in rows.values()) == 4 * 9
    again, read = tweets.read_structure(tmp_path / "t.json")
    assert again == games
    assert read.to_json() == guesses.to_json()


def every_way(games, guesses):
    """What the published rejections come to: all pairs of game and word that fit alike, then all guesses of each row."""
    ways = collections.Counter()
    rows = [[str(CODE_TEXTS[c]) for c in game.codes] for game in games]
    pairs = [(row, table) for row in rows for table in guesses.to_json().values() if set(row) <= table.keys()]
    for row, table in pairs:
        choices = [table[colours] for colours in row]
        for said in itertools.product(*choices):
            texts = tuple(itertools.chain(*zip(said, row)))
            ways[texts] += 1 / len(pairs) / np.prod([len(choice) for choice in choices])
    return ways


def test_games_are_drawn_exactly():
    guesses = Guesses.of(WORDS, GUESSES)
    absent = code("light", "panic")
    games = [
        Tweet("panic", (absent, 242)),
        Tweet("solar", (code("proxy", "solar"), code("sugar", "solar"), 242)),
        Tweet("panic", (code("robot", "panic"), 242)),
        Tweet("shire", (0, 0, 0)),
        Tweet("proxy", (CODES["<g><g><g><g><b>"], 242)),
    ]
    wanted = every_way(games, guesses)
    dialogues = TweetGames(games, guesses)(np.random.default_rng(1), 40_000, 0)
    found = collections.Counter(dialogue.texts for dialogue in dialogues)
    assert found.keys() == wanted.keys()
    assert len(wanted) > 5
    for texts, share in wanted.items():
        assert abs(found[texts] / 40_000 - share) < 5 * np.sqrt(share / 40_000)


def test_impossible_rows_are_counted():
    guesses = Guesses.of(WORDS, GUESSES)
    never = CODES["<g><g><g><g><b>"]
    games = [Tweet("panic", (never, 242)), Tweet("panic", (242,)), Tweet("panic", (never, never - 1, 242))]
    facts = TweetGames(games, guesses).facts
    assert (facts["games"], facts["games_with_impossible_rows"], facts["games_left_out"]) == (3, 2, 2)
    assert facts["impossible_rows"] >= 1
    with pytest.raises(UserError, match="none of the 1 games"):
        TweetGames(games[:1], guesses)


def test_the_best_games_and_how_the_published_code_ranks_them():
    games = [Tweet("panic", codes) for codes in ((0,) * 6, (0,) * 5 + (242,), (0, 242), (0,) * 3)]
    assert tweets.best(games, 0.5) == [games[2], games[1]]
    assert tweets.best(games, 0.75) == [games[2], games[1], games[3]]
    assert tweets.best(games, 0.5, rows_only=True) == [games[2], games[3]]


def test_a_day_without_a_word(tmp_path):
    (tmp_path / "t.csv").write_text("9,,,,⬛⬛⬛⬛⬛\n")
    with pytest.raises(UserError, match="day '9' must be 210 to 249"):
        tweets.read_csv(tmp_path / "t.csv", DAYS)
