from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.tasks.wordle.environment import WordleEnvironment, WordleObservation
from motif_jax.ilql.tasks.wordle.game import CODES, Boards, WordTable, play, read_words, returns
from motif_jax.ilql.tasks.wordle.policies import best_words, parse, picture
from motif_jax.ilql.tasks.wordle.task import Wordle


def played(policy, count, size=60):
    plan = parse(policy)
    table = WordTable(read_words("words", "wordle_official_200", size), plan.lists)
    return play(Boards(table, count), plan.player(table), np.random.default_rng(0))


def test_means_are_the_published_ones():
    """Published: mean returns of 30 and 236 words by 6,000 games and more, of random and fitting
    words and the expert.
    """
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


def test_a_board_leaves_out_guesses_that_its_table_lacks() -> None:
    environment = WordleEnvironment(WordTable(["crane", "slate", "trace", "brick"], ["zzzzz"]))
    environment.reset(np.random.default_rng(0))
    for guess in ("crane", "qqqqq", "none", "zzzzz"):
        observation = environment.step(guess, "trace").observation

    board = observation.board()

    # The colours of crane for trace, and no letter of zzzzz.
    crane = CODES["<y><g><g><b><g>"]
    assert board.guesses.tolist() == [[0, 4, 0, 0, 0, 0]]
    assert board.codes.tolist() == [[crane, 0, 0, 0, 0, 0]]
    assert board.turns.tolist() == [2]
    assert board.won.tolist() == [False]
    assert board.fits.tolist() == [[False, False, True, False, False]]


def test_a_picture_colours_letters_and_leaves_other_texts_unchanged() -> None:
    coloured, plain = picture(["crane", "none"], [CODES["<y><g><g><b><g>"], None]).split("\n")

    yellow = "\x1b[30;43m"
    green = "\x1b[30;42m"
    grey = "\x1b[;100m"
    cells = [(yellow, "C"), (green, "R"), (green, "A"), (grey, "N"), (green, "E")]
    assert coloured == "".join(f"{colour} {letter} \x1b[0m" for colour, letter in cells)
    assert plain == "none"
    assert picture([], []) == "(nothing guessed yet)"


def test_a_list_holds_words_of_five_letters(tmp_path):
    (tmp_path / "words.txt").write_text("crane\nlong-one\nslate\ncrane\nCRANE\nshort\n")
    assert read_words("words", str(tmp_path / "words.txt")) == ("crane", "slate", "short")
    assert read_words("words", str(tmp_path / "words.txt"), 1) == ("crane",)


def guesses_with_states(
    policy: str, count: int = 30, size: int = 60
) -> list[tuple[int, WordleObservation]]:
    """Each guess of games, an index of the table, and the state before it."""
    boards = played(policy, count, size)
    words = boards.table.words
    pairs = []
    for game in range(count):
        guesses = boards.guesses[game].tolist()
        codes = boards.codes[game].tolist()
        for turn in range(boards.turns[game]):
            texts = [words[guess] for guess in guesses[:turn]]
            pairs.append((guesses[turn], WordleObservation(boards.table, texts, codes[:turn])))
    return pairs


def test_fitting_guesses_words_that_fit() -> None:
    assert all(state.fits[guess] for guess, state in guesses_with_states("fitting"))


def test_the_wrong_player_prefers_words_that_do_not_fit() -> None:
    pairs = guesses_with_states("wrong")

    assert all(not state.fits[guess] or state.fits.all() for guess, state in pairs)


@pytest.mark.parametrize("policy", ["optimal", "optimal(None)"])
def test_the_expert_guesses_a_word_of_the_most_information(policy: str) -> None:
    for guess, state in guesses_with_states(policy):
        assert guess in best_words(state.table.table, np.flatnonzero(state.fits))


@pytest.mark.parametrize("policy", ["start", "optimal(start)", "repeat(start)"])
def test_a_start_is_a_word_of_the_list_of_starts(policy: str) -> None:
    starts = read_words("policy", "start_words")

    for guess, state in guesses_with_states(policy):
        assert state.guesses or state.table.words[guess] in starts


@pytest.mark.parametrize("policy", ["repeat", "repeat(None, 2)", "repeat(start)"])
def test_repeat_guesses_what_was_guessed(policy: str) -> None:
    pairs = guesses_with_states(policy)

    assert all(
        not state.guesses or state.table.words[guess] in state.guesses for guess, state in pairs
    )


def test_a_random_mixture_guesses_words_of_its_list() -> None:
    starts = read_words("policy", "start_words")
    pairs = guesses_with_states("random_mixture(0.4, 'start_words')")

    assert {state.table.words[guess] for guess, state in pairs} <= set(starts)


def test_a_mixture_draws_one_of_its_players_each_turn() -> None:
    repeated = 0
    later = 0
    for guess, state in guesses_with_states("mixture(0.3, fitting, repeat)", 300):
        word = state.table.words[guess]
        if state.guesses:
            assert state.fits[guess] or word in state.guesses
            later += 1
            repeated += word in state.guesses

    assert repeated / later == pytest.approx(0.7, abs=0.06)


def test_monte_carlo_guesses_the_word_that_wins_sampled_games() -> None:
    """With two words that fit, games that begin with one of them are better than all others."""
    plan = parse("monte_carlo(400, random)")
    table = WordTable(read_words("words", "wordle_official_200", 20))
    boards = Boards(table, 10)
    boards.fits[:] = False
    boards.fits[:, [3, 7]] = True

    guesses = plan.player(table)(boards, np.arange(10), np.random.default_rng(0))

    assert set(guesses.tolist()) <= {3, 7}


@pytest.mark.parametrize("policy", ["fitting", "optimal", "start"])
def test_a_policy_continues_after_guesses_that_are_no_words(policy: str) -> None:
    task = Wordle({"num_words": 60})
    environment = task.environment()
    rng = np.random.default_rng(2)
    environment.reset(rng)
    for text in ("zzzzz", "no", "crane"):
        observation = environment.step(text).observation

    word = task.policy(policy).act(observation, rng)

    assert observation.fits[observation.table.index[word]]
