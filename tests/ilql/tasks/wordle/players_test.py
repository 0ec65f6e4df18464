from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle.boards import Boards, play, returns
from motif_jax.ilql.tasks.wordle.colours import WordTable
from motif_jax.ilql.tasks.wordle.environment import WordleEnvironment
from motif_jax.ilql.tasks.wordle.policies import parse, picture
from motif_jax.ilql.tasks.wordle.words import read_words
from tests.recorded_outputs import assert_matches_packed_recording


def played(policy, count, size=60):
    plan = parse(policy)
    table = WordTable(read_words("words", "wordle_official_200", size), plan.lists)
    return play(Boards(table, count), plan.player(table), np.random.default_rng(0))


def test_means_are_the_published_ones():
    """ILQL_FACTS: mean returns of 30 and 236 words by 6,000 games and more, of random and fitting words and the expert."""
    published = {30: (-5.30, -1.41, -1.14), 236: (-5.92, -2.14, -1.76)}
    for size, means in published.items():
        for policy, mean in zip(("random", "fitting", "optimal"), means, strict=True):
            assert returns(played(policy, 2000, size)).mean() == pytest.approx(mean, abs=0.12)


def test_boards_play_by_the_environments_rules():
    boards = played("mixture(0.5, random, fitting)", 200)
    environment = WordleEnvironment(boards.table)
    for game in range(len(boards)):
        environment.reset(np.random.default_rng(0))
        for turn in range(boards.turns[game]):
            guess = boards.guesses[game, turn]
            answers = np.flatnonzero(boards.table.table[guess] == boards.codes[game, turn])
            hidden = next(word for word in answers if boards.fits[game, word])
            outcome = environment.step(boards.table.words[guess], boards.table.words[hidden])
        assert np.array_equal(outcome.observation.fits, boards.fits[game])
        assert (outcome.terminal, outcome.reward == 0) == (True, boards.won[game])
        assert outcome.observation.to_sequence().total == returns(boards)[game]


def test_a_board_has_the_guesses_that_its_table_knows_and_a_picture_has_them_all(record):
    environment = WordleEnvironment(WordTable(["crane", "slate", "trace", "brick"], ["zzzzz"]))
    environment.reset(np.random.default_rng(0))
    for guess in ("crane", "qqqqq", "none", "zzzzz"):
        now = environment.step(guess, "trace").observation
    said = {name: str(getattr(now.board(), name)) for name in ("guesses", "turns", "codes", "won", "fits")}
    said |= {"crane": picture(["crane", "none"], (*now.codes[:1], None)), "empty": picture([], [])}
    assert_matches_packed_recording("wordle_board", said, record)


def test_a_list_holds_words_of_five_letters(tmp_path):
    (tmp_path / "words.txt").write_text("crane\nlong-one\nslate\ncrane\nCRANE\nshort\n")
    assert read_words("words", str(tmp_path / "words.txt")) == ("crane", "slate", "short")
    assert read_words("words", str(tmp_path / "words.txt"), 1) == ("crane",)
