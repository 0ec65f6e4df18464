"""The yardstick of the Wordle benchmark plays the same game as ours."""

from __future__ import annotations

import numpy as np

from motif_jax.benchmarks import _plain_wordle as plain
from motif_jax.benchmarks import wordle
from motif_jax.envs.wordle import knowledge
from motif_jax.envs.wordle.colours import WordTable
from motif_jax.envs.wordle.environment import WordleEnvironment
from motif_jax.envs.wordle.expert import best_words
from motif_jax.envs.wordle.words import read_words
from motif_jax.support import resources

WORDS = read_words("words", "wordle_official_200")[:40]


def test_states_words_and_the_expert_are_the_same():
    table, game, rng = WordTable(WORDS), plain.PlainGame(WORDS, 0), np.random.default_rng(0)
    environment = WordleEnvironment(table)
    for seed in range(20):
        observation, state = environment.reset(np.random.default_rng(seed)), plain.BEGINNING
        while not observation.terminal:
            fitting = np.flatnonzero(observation.fits)
            assert game.fitting(state) == [WORDS[place] for place in fitting]
            assert game.best(state) == [WORDS[place] for place in best_words(table.table, fitting)]
            guess, hidden = WORDS[rng.integers(40)], WORDS[rng.choice(fitting)]
            state = plain.after(state, guess, hidden)
            observation = environment.step(guess, hidden).observation
            assert np.array_equal(np.array(state), observation.knowledge())


def test_knowledge_has_the_same_numbers():
    assert (plain.NOT_HERE, plain.POSSIBLE, plain.HERE) == (
        knowledge.NOT_HERE, knowledge.POSSIBLE, knowledge.IS_HERE,
    )  # fmt: skip


def test_a_small_run(tmp_path):
    (tmp_path / "w.txt").write_text("\n".join(WORDS[:25]))
    config = resources.config("benchmark", "wordle")
    config.repeats = 1
    config.options.update(words=str(tmp_path / "w.txt"), games=500, plain_games=100, plain_expert_games=5)
    line = wordle.run(config)
    assert line["ratio"] == line["value"] / line["baseline"]["value"]
    assert line["settings"]["num_words"] == 25
    assert set(line["mean_returns"]) == {"fitting", "plain_fitting", "expert", "plain_expert"}
