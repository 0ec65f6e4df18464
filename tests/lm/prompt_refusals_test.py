"""Prompts, candidates and texts that a model cannot take are refused in one line."""

from __future__ import annotations

import json
import shutil
import string
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models as tokenizer_models
from tokenizers import pre_tokenizers

from motif_jax import lm as language
from motif_jax.core import resources
from motif_jax.core.errors import UserError
from motif_jax.lm import (
    config,
    corpus,
    prompt_length,
    prompted_texts,
)
from motif_jax.lm.sampling import Sampling
from motif_jax.lm.text_files import read_questions
from motif_jax.lm.tokens import Tokenizer, candidate_rows
from tests.lm import recipes
from tests.lm.models import parsed
from tests.refusals import refuses

QUESTIONS = [
    ("", "config.file=rows.jsonl: holds no prompt"),
    (
        '{"prompt": "a"}\n[1]\n',
        'rows.jsonl line 2: must be an object with a text under "prompt", or with turns {"role": ..., "content": ...}',
    ),
    (
        '{"prompt": 3}\n',
        'rows.jsonl line 1: must be an object with a text under "prompt", or with turns {"role": ..., "content": ...}',
    ),
    (
        "no\n",
        "rows.jsonl line 1 cannot be read: no JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    (
        '{"prompt": "a", "candidates": []}\n',
        'rows.jsonl line 1: "candidates" must be a list of texts',
    ),
    (
        "ÿ",
        "config.file=rows.jsonl cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    (
        '{"prompt": "a", "candidates": ["b", 2]}\n',
        'rows.jsonl line 1: "candidates" must be a list of texts',
    ),
    (
        '{"prompt": "a", "candidates": "b"}\n',
        'rows.jsonl line 1: "candidates" must be a list of texts',
    ),
    (
        '{"prompt": "a"}\n{"prompt": "\\ud800"}\n',
        "rows.jsonl line 2: half of a character stands in its texts (surrogates not allowed)",
    ),
    (
        '{"prompt": "a", "candidates": ["\\udc00"]}\n',
        "rows.jsonl line 1: half of a character stands in its texts (surrogates not allowed)",
    ),
]
ASKED = {"prompt": "go", "candidates": ["left", "right"]}
UNSCORED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "go" * 60, "candidates": [" left"]}, "a prompt of 60 tokens ('gogo"),
    ({"prompt": "", "candidates": ["left"]}, "text '' has no tokens"),
    (
        {"prompt": "go", "candidates": ["left", "right", "left"]},
        "candidates 'left' and 'left' have the same tokens",
    ),
    ({"prompt": "go", "candidates": ["left", ""]}, "candidate '' has no tokens"),
]


def letters() -> Tokenizer:
    """A tokenizer with a token for each letter."""
    numbers = {letter: number for number, letter in enumerate(string.printable)}
    backend = Backend(tokenizer_models.WordLevel(numbers, " "))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return Tokenizer(backend)


FITS: Any = partial(prompt_length.require, letters(), parsed("gpt2", {"n_positions": 9}))


def asked(name: str, model: Path, at: Path, row: dict[str, Any], **values: Any) -> None:
    """A stage over texts before its work."""
    at.with_suffix(".jsonl").write_text(f"{json.dumps(ASKED)}\n{json.dumps(row)}\n")
    config = resources.config(name)
    config.update(model=str(model), file=f"{at}.jsonl", **values)
    prompted_texts.check(config, at / "run")


@pytest.mark.parametrize(("content", "words"), QUESTIONS)
def test_a_file_of_prompts_that_cannot_be_read_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(UserError) as caught:
        read_questions(path, "file")
    assert str(caught.value).replace(f"{tmp_path}/", "") == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "config.file must name a file of prompts"),
        ("none.txt", "config.file=none.txt: there is no such file"),
    ],
)
def test_a_file_of_prompts_must_be_there(name: str, words: str) -> None:
    with refuses(words):
        read_questions(name, "file")


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (["abc", "abcdef"], [["a"], ["wxyz"]]),
            "a prompt of 6 tokens ('abcdef'...) and 4 more do not fit a model of 9",
        ),
        (
            (["0123456789" * 5],),
            "a prompt of 50 tokens ('0123456789012345678901234567890123456789'...) and 0 more",
        ),
        ((["a", ""],), "text '' has no tokens"),
        (
            (["abcdefgh"], None, 2),
            "a prompt of 8 tokens ('abcdefgh'...) and 2 more do not fit a model of 9 positions",
        ),
    ],
)
def test_texts_longer_than_the_model_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    with refuses(words):
        FITS(*arguments)


def test_texts_that_just_fit_are_taken() -> None:
    FITS(["abc", "abcde"], [["a", "wxyz"], ["wxy"]])
    FITS(["abcdefghi"])


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


def test_a_model_without_a_decoder_is_refused_for_scores(worded: Path, tmp_path: Path) -> None:
    model = shutil.copytree(worded, tmp_path / "model")
    (model / config.FILE).write_text(json.dumps(recipes.CONFIGS["roberta"]))
    with refuses("a roberta model scores no text: it has no decoder"):
        asked("score_text", model, tmp_path / "good", ASKED)


@pytest.mark.parametrize(("row", "words"), UNSCORED)
def test_texts_that_cannot_be_scored_are_refused(
    worded: Path, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    """By a stage before its work, and by the library."""
    with refuses(words):
        asked("score_text", worded, tmp_path / "rows", row)
    with refuses(words):
        language.load(worded).score([row["prompt"]], row["candidates"])
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(("row", "words"), UNSCORED[:2])
def test_prompts_that_cannot_be_continued_are_refused(
    worded: Path, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    with refuses(words):
        asked("generate_text", worded, tmp_path / "rows", row, max_new_tokens=4)


def test_stops_of_beams_are_checked_before_any_work(worded: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {"stops": "go|go forward", "max_new_tokens": 4}
    asked("generate_text", worded, tmp_path / "rows", ASKED, **values)
    with refuses("config.stops='go|go forward': 'go forward' is no token of the model"):
        asked("generate_text", worded, tmp_path / "rows", ASKED, **values, beams=True)
