"""Prompts, candidates and texts that a model cannot take are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from motif_jax import lm as language
from motif_jax.lm import (
    config,
    corpus,
    prompt_length,
)
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.tokens import Tokenizer, candidate_rows
from tests.lm.models import parsed
from tests.refusals import refuses

UNSCORED = [
    ("go" * 60, [" left"], "a prompt of 60 tokens ('gogo"),
    ("", ["left"], "text '' has no tokens"),
    ("go", ["left", "right", "left"], "candidates 'left' and 'left' have the same tokens"),
    ("go", ["left", ""], "candidate '' has no tokens"),
]


def test_a_model_without_a_decoder_scores_nothing() -> None:
    with refuses("a roberta model scores no text: it has no decoder"):
        config.require_decoder(parsed("roberta", {}), "scores")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "there are no candidates to choose between"),
        (["a", ""], "candidate '' has no tokens"),
        (["a", "b", "a"], "candidates 'a' and 'a' have the same tokens"),
    ],
)
def test_candidates_that_cannot_be_told_apart_are_refused(
    worded: Path, texts: list[str], words: str
) -> None:
    with refuses(words):
        candidate_rows(Tokenizer.read(worded), texts)


def test_texts_fit_up_to_the_last_position() -> None:
    settings = parsed("gpt2", {"n_positions": 9})

    prompt_length.require_prompts(["abcde", "ab"], [[1] * 5, [1] * 2], settings, [4, 7])
    with refuses("a prompt of 5 tokens ('abcde'...) and 5 more do not fit a model of 9 positions"):
        prompt_length.require_prompts(["abcde"], [[1] * 5], settings, 5)


def test_lists_of_candidates_are_for_all_or_for_each() -> None:
    assert prompt_length.each_prompts(["p", "q"], ["a", "b"]) == [("a", "b")] * 2
    assert prompt_length.each_prompts(["p", "q"], [["a"], ["b", "c"]]) == [("a",), ("b", "c")]
    with refuses("2 lists of candidates for 1 prompts: one for each, or one for all"):
        prompt_length.each_prompts(["p"], [["a"], ["b"]])


def test_texts_to_learn_from_must_be_there(worded: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    for path, words in (
        (worded / "none", "config.texts={}: there is no such file or folder"),
        (
            worded / "config.json",
            "config.texts={}: must be a file or folder of .txt, .md, .jsonl, .parquet files",
        ),
        (tmp_path / "empty.jsonl", "config.texts={}: holds no text"),
    ):
        with refuses(words.format(path)):
            corpus.find(str(path))
    with refuses("config.words=none: there is no such file or folder"):
        corpus.find("none", "words")


def test_an_empty_stop_or_no_candidate_is_refused(worded: Path) -> None:
    loaded = language.load(worded)
    with refuses("a stop is empty: it would end every text"):
        loaded.generate(["go"], stops=["a", ""])
    with refuses("stops is one text: must be a list of texts, such as ['and then']"):
        loaded.generate(["go"], stops="and then")
    with refuses("there are no candidates to choose between"):
        loaded.score(["go"], [])


def test_draws_are_refused_where_nothing_is_drawn(worded: Path) -> None:
    loaded = language.load(worded)
    same = "count=3 without draws: all continuations would be the same; give sampling=Sampling() or search=True"
    with refuses(same):
        loaded.generate(["go"], count=3)
    with refuses(same):
        loaded.generate(["go"], count=3, sampling=Sampling(greedy=True))
    with refuses("sampling beside search=True: a search draws nothing; leave one of them out"):
        loaded.generate(["go"], count=3, search=True, sampling=Sampling(temperature=5.0))


@pytest.mark.parametrize(("prompt", "candidates", "words"), UNSCORED)
def test_texts_that_cannot_be_scored_are_refused(
    worded: Path, prompt: str, candidates: list[str], words: str
) -> None:
    with refuses(words):
        language.load(worded).score([prompt], candidates)


@pytest.mark.parametrize(("prompt", "words"), [(row[0], row[2]) for row in UNSCORED[:2]])
def test_prompts_that_cannot_be_continued_are_refused(
    worded: Path, prompt: str, words: str
) -> None:
    with refuses(words):
        language.load(worded).generate([prompt], max_new_tokens=4)


def test_stops_of_beams_must_be_tokens(worded: Path) -> None:
    loaded = language.load(worded)
    with refuses("'go forward' is no token of the model"):
        loaded.generate(["go"], max_new_tokens=4, search=True, stops=["go", "go forward"])
