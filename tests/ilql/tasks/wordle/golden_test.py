"""Wordle's rules, tokens and expert against what the published code did: games, knowledge, items
and indices exactly.
"""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.ilql.dialogues import dialogue_tokens
from motif_jax.ilql.dialogues.dialogue import Dialogue
from motif_jax.ilql.dialogues.dialogue_tokens import TokenReward
from motif_jax.ilql.tasks.wordle import policies
from motif_jax.ilql.tasks.wordle.environment import (
    NUMBERS,
    WordleEnvironment,
    WordleObservation,
    WordleTokenizer,
)
from motif_jax.ilql.tasks.wordle.game import WordTable, colours_of
from tests.conftest import load_golden
from tests.envs.playing import error_line
from tests.golden_ilql import dialogue_text

FIELDS = (
    "tokens rewards terminals utterance_rewards utterance_terminals state_idxs action_idxs".split()
)
FIELDS += ["utterance_state_idxs", "utterance_action_idxs"]
PLAYED = load_golden("ilql_wordle.json")
TABLES = {name: WordTable(words) for name, words in PLAYED["word_lists"].items()}


def game(table, guesses, hidden):
    environment = WordleEnvironment(table)
    environment.reset(np.random.default_rng(0))
    return [environment.step(guess, word) for guess, word in zip(guesses, hidden)]


def assert_item(dialogue: Dialogue, golden: dict, reward: TokenReward) -> None:
    item = dialogue_tokens.tokenise(dialogue, WordleTokenizer(), reward)
    assert dialogue_text(dialogue) == golden["text"]
    for field in FIELDS:
        assert getattr(item, field.replace("idxs", "indices")).tolist() == golden[field], field


def code_by(text: str, guess: str) -> int:
    """The code of a guess that led to a published knowledge, a letter for each letter and place."""
    known = np.array(["nph".index(letter) for letter in text]).reshape(26, 5)
    return int((colours_of(known, guess) * 3 ** np.arange(5)).sum())


def test_games():
    for number, golden in enumerate(PLAYED["games"]):
        assert golden["id"] == number
        table = TABLES[golden["word_list"]]
        turns = golden["turns"]
        outcomes = game(table, [t["guess"] for t in turns], [t["hidden"] for t in turns])
        for turn, outcome in zip(turns, outcomes, strict=True):
            now = outcome.observation
            assert (outcome.reward, outcome.terminal) == (turn["reward"], turn["done"])
            assert np.flatnonzero(now.fits).tolist() == turn["consistent"]
            texts, rewards = now.to_sequence()[:2]
            feedback = [text for text, reward in zip(texts, rewards) if reward is None]
            assert feedback == turn["feedback"]
            assert [r for r in rewards if r is not None] == turn["sequence_rewards"]
            assert (now.codes[-1] is None) == (turn["hidden"] is None)
            assert now.codes[-1] is None or turn["guess_kind"] not in ("short", "long")
            assert golden["guess_mix"] != "consistent" or turn["guess_kind"] == "consistent"
            if now.codes[-1] is not None:
                assert code_by(turn["knowledge"], turn["guess"]) == now.codes[-1]


def test_items():
    assert PLAYED["vocab"] == NUMBERS
    for golden in PLAYED["games"]:
        guesses, hidden = ([turn[key] for turn in golden["turns"]] for key in ("guess", "hidden"))
        dialogue = game(TABLES[golden["word_list"]], guesses, hidden)[-1].observation.to_sequence()
        for name, reward in (("datapoint", 0.0), ("datapoint_token_reward_minus_0p1", -0.1)):
            if name in golden:
                assert_item(dialogue, golden[name], dialogue_tokens.constant_reward(reward))
        if specified := golden.get("datapoint_specified_reward"):
            values = {int(token): value for token, value in specified["token_data"].items()}
            reward = dialogue_tokens.rewards_by_token(
                values, specified["scale"], specified["shift"]
            )
            assert_item(dialogue, specified, reward)
    for golden in PLAYED["part_games"]:
        outcomes = game(table := TABLES[golden["word_list"]], golden["guesses"], golden["hidden"])
        now = outcomes[-1].observation if outcomes else WordleObservation(table)
        assert_item(now.to_sequence(), golden["datapoint"], dialogue_tokens.constant_reward(0.0))


def test_guesses_that_are_no_five_letters():
    for golden in PLAYED["non_alphabetic"]:
        (outcome,) = game(TABLES["sixty"], [golden["guess"]], [golden["hidden"]])
        assert (outcome.reward, outcome.terminal) == (golden["reward"], golden["done"])
        dialogue = outcome.observation.to_sequence()
        assert [list(pair) for pair in zip(dialogue.texts, dialogue.rewards)] == golden["sequence"]
        assert outcome.observation.fits.all()


def test_a_list_of_one_word():
    table = WordTable(["abcde"])
    for turns in PLAYED["one_word_list"]:
        environment = WordleEnvironment(table)
        environment.reset(np.random.default_rng(0))
        for turn in turns:
            if turn.get("refused"):
                assert "ended" in error_line(environment.step, turn["guess"])
            else:
                assert environment.step(turn["guess"])[1:] == (turn["reward"], turn["done"])


def test_the_experts_gains_and_words():
    golden = load_golden("ilql_wordle_policy.json")
    tables = {name: WordTable(words) for name, words in golden["word_lists"].items()}
    for case in golden["cases"]:
        table = tables[case["word_list"]]
        codes = [code_by(case["knowledge"], guess) for guess in case["guesses"]]
        fits = WordleObservation(table, case["guesses"], codes).fits
        assert np.flatnonzero(fits).tolist() == case["consistent"]
        members = np.flatnonzero(fits)
        gains = policies.information_gain(table.table, members)
        named = dict(zip((table.words[member] for member in members), gains, strict=True))
        assert named == pytest.approx(case["information_gain"], rel=0, abs=1e-12)
        best = policies.best_words(table.table, members)
        assert sorted(table.words[word] for word in best) == sorted(case["best_words"])
        if "outcomes_of_best" not in case:
            continue
        # Every knowledge that the first best word leads to, by how many words, and how many words
        # it leaves.
        row = table.table[table.index[case["best_words"][0]]][members]
        counts = dict(zip(*np.unique(row, return_counts=True), strict=True))
        for known, leading, left in case["outcomes_of_best"]:
            assert counts[code_by(known, case["best_words"][0])] == leading == left
        if len(case["outcomes_of_best"]) < 40:
            assert len(counts) == len(case["outcomes_of_best"])
