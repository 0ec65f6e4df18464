from __future__ import annotations

import collections
import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle import tweets
from motif_jax.ilql.tasks.wordle.game import CODE_TEXTS, CODES, WordTable, read_words
from motif_jax.ilql.tasks.wordle.task import Wordle
from motif_jax.ilql.tasks.wordle.tweets import Guesses, Tweet, TweetGames

WORDS = ["panic", "solar", "shire", "proxy"]
GUESSES = [*WORDS, "point", "robot", "sugar", "light", "those"]
DAYS = read_words("days", "tweet_words")
NEVER = CODES["<g><g><g><g><b>"]


def code(guess, word):
    return int(WordTable([guess, word]).table[0, -1])


def test_the_published_structure_there_and_back(tmp_path):
    guesses = Guesses.of(WORDS, GUESSES)
    games = [
        Tweet("panic", (code("solar", "panic"), 242)),
        Tweet("proxy", (code("robot", "proxy"),)),
    ]
    tweets.write_structure(tmp_path / "t.json", games, guesses)
    data = json.loads((tmp_path / "t.json").read_text())
    assert data["games"] == [
        [game.word, [str(CODE_TEXTS[c]) for c in game.codes]] for game in games
    ]
    for word, guess in itertools.product(WORDS, GUESSES):
        assert guess in data["transitions"][word][str(CODE_TEXTS[code(guess, word)])]
    assert sum(len(g) for rows in data["transitions"].values() for g in rows.values()) == 4 * 9
    again, read = tweets.read_structure(tmp_path / "t.json")
    assert again == games
    assert read.to_json() == guesses.to_json()


def every_way(games, guesses, true_word):
    """What the published rejections come to: all pairs of game and word that fit alike, then all
    guesses of each row.
    """
    ways = collections.Counter()
    pairs = []
    for game, (word, table) in itertools.product(games, guesses.to_json().items()):
        row = [str(CODE_TEXTS[code]) for code in game.codes]
        if set(row) <= table.keys() and (word == game.word or not true_word):
            pairs.append((row, list(itertools.product(*(table[colours] for colours in row)))))
    for row, choices in pairs:
        for guessed in choices:
            ways[tuple(itertools.chain(*zip(guessed, row)))] += 1 / len(pairs) / len(choices)
    return ways


@pytest.mark.parametrize("true_word", [False, True])
def test_games_are_drawn_exactly(true_word):
    guesses = Guesses.of(WORDS, GUESSES)
    games = [Tweet("panic", (code(guess, "panic"), 242)) for guess in ("light", "robot")]
    games += [Tweet("solar", (code("proxy", "solar"), code("sugar", "solar"), 242))]
    games += [Tweet("shire", (0, 0, 0)), Tweet("proxy", (NEVER, 242))]
    wanted = every_way(games, guesses, true_word)
    drawn = TweetGames(games, guesses, *([True] if true_word else []))
    dialogues = drawn(np.random.default_rng(1), 40_000, 0)
    counts = collections.Counter(dialogue.texts for dialogue in dialogues)
    assert counts.keys() == wanted.keys()
    assert len(wanted) == (4 if true_word else 16)
    assert {dialogue.terminal for dialogue in dialogues} == {True, true_word}
    for texts, share in wanted.items():
        assert abs(counts[texts] / 40_000 - share) < 5 * np.sqrt(share / 40_000)


def test_impossible_rows_are_counted():
    games = [
        Tweet("panic", (NEVER, 242)),
        Tweet("those", (242,)),
        Tweet("panic", (NEVER, NEVER - 1, 242)),
    ]
    assert TweetGames(games, Guesses.of(WORDS, GUESSES)).facts == {
        "games": 3,
        "games_with_impossible_rows": 2,
        "games_left_out": 2,
        "impossible_rows": 2,
    }


def test_the_best_games_and_how_the_published_code_ranks_them():
    games = [Tweet("panic", codes) for codes in ((0,) * 6, (0,) * 5 + (242,), (0, 242), (0,) * 3)]
    assert tweets.best(games, 0.5) == [games[2], games[1]]
    assert tweets.best(games, 0.75) == [games[2], games[1], games[3]]
    assert tweets.best(games, 0.5, rows_only=True) == [games[2], games[3]]


def test_rows_are_the_first_run_until_the_word():
    row = "⬛🟨🟩⬜🟦"
    won = "🟧🟩🟩🟩🟩"
    code = 3 + 2 * 9 + 81
    assert tweets.rows_of(f"Wordle 3/6\n\n{row}\n{row[::-1]}\n\n{won}") == (code, 1 + 2 * 9 + 27)
    assert tweets.rows_of("\n".join([row] * 8)) == (code,) * 6
    assert tweets.rows_of(f"{row}\n{won}\n{row}") == (code, 242)
    assert tweets.rows_of(f"{row}⬛\n{row[:4]}\n") == ()
    # As Windows ends lines.
    assert tweets.rows_of(f"Wordle 210 2/6\r\n\r\n{row}\r\n{won}") == (code, 242)


def test_a_longer_run_below_the_first_and_rows_beside_blanks_are_not_read():
    row = "⬛⬛⬛⬛⬛"
    assert tweets.rows_of(f"{row}\nx\n{row}\n{row}") == (0,)
    assert tweets.rows_of(f"{row} \n{row}\n{row}") == (0, 0)


def test_days_have_their_words(tmp_path):
    (tmp_path / "t.csv").write_text("1,,,,nothing\n 210,,,,⬛⬛⬛⬛⬛\n249,,,,⬛⬛⬛⬛⬛\n")
    assert tweets.read_csv(tmp_path / "t.csv", DAYS) == [
        Tweet(DAYS[0], (0,)),
        Tweet(DAYS[39], (0,)),
    ]


ROW = "<b>" * 5
PANIC = {"panic": {ROW: ["solar"]}}
LONGEST = [["panic", [ROW] * 6]]


def structure(folder: Path, games: Any, transitions: Any) -> Path:
    path = folder / "tweets.json"
    path.write_text(json.dumps({"games": games, "transitions": transitions}))
    return path


def test_a_structure_may_have_games_of_six_rows(tmp_path):
    games, _ = tweets.read_structure(structure(tmp_path, LONGEST, PANIC))

    assert games == [Tweet("panic", (0,) * 6)]


@pytest.mark.parametrize("policy", ["optimal", "random_mixture(0.7, 'tweet_words')"])
def test_simulated_tweets_are_games_about_the_words_of_their_days(tmp_path, policy):
    path = Path(Wordle({"simulated": 200}).prepare("tweets", policy, tmp_path)["tweets"])

    games = tweets.read_csv(path, DAYS)

    with path.open(newline="") as file:
        heads = [row[-1].split("\n")[0].split() for row in csv.reader(file)]
    assert len(games) == 200
    for game, (name, day, score) in zip(games, heads, strict=True):
        turns = str(len(game.codes)) if game.codes[-1] == 242 else "X"
        assert (name, DAYS[int(day) - 210], score) == ("Wordle", game.word, f"{turns}/6")
    assert len({game.word for game in games}) > 30
