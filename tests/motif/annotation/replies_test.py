"""Replies of servers: what counts as an answer, and what does not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from motif_jax.motif.annotation.openai_client import (
    MalformedReplyError,
    checked,
    verdict_log_probabilities,
)

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Yes"}}
DIGITS = int("9" * 4000)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, (0, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}, (7, 0, 0)),
        ({"prompt_tokens": "many", "prompt_tokens_details": [1]}, (0, 0, 0)),
        (
            {
                "prompt_tokens": 7,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            (7, 2, 4),
        ),
        ({"prompt_tokens": 1 << 40, "completion_tokens": -1}, (0, 0, 0)),
        ({"prompt_tokens": (1 << 40) - 1, "completion_tokens": 0}, ((1 << 40) - 1, 0, 0)),
        ({"prompt_tokens": DIGITS, "completion_tokens": 1.5}, (0, 0, 0)),
    ],
    ids=["none", "nulls", "texts", "all", "too many", "most", "endless"],
)
def test_tokens_are_counts_that_can_be(usage: Any, tokens: tuple[int, int, int]) -> None:
    assert checked({"choices": [CHOICE], "usage": usage}) == (tokens, CHOICE)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        {},
        *(
            {"choices": choices}
            for choices in ([], {"0": CHOICE}, [None], [{}], [{"message": "Yes"}])
        ),
    ],
)
def test_a_reply_without_choices_is_rubbish(reply: Any) -> None:
    with pytest.raises(MalformedReplyError, match=r"^no choices in the reply "):
        checked(reply)


def test_a_content_that_is_no_text_is_rubbish() -> None:
    with pytest.raises(MalformedReplyError, match="the reply's content is not a text"):
        checked({"choices": [{"message": {"content": ["Yes"]}}]})


def test_only_the_first_choice_counts() -> None:
    assert checked({"choices": [CHOICE, {}]})[1] == CHOICE


def test_missing_content_is_an_empty_answer() -> None:
    assert checked({"choices": [{"message": {}}]}) == ((0, 0, 0), {"message": {"content": ""}})


def token(word: str, share: float, **candidates: float) -> dict[str, Any]:
    listed = [{"token": text, "logprob": math.log(mass)} for text, mass in candidates.items()]
    return {"token": word, "logprob": math.log(share), "top_logprobs": listed}


def probabilities(content: Any) -> list[float]:
    logs = verdict_log_probabilities({"logprobs": {"content": content}}, ("1", "2", "None", "Yes"))
    return [math.exp(value) for value in logs]


def test_verdicts_have_the_probabilities_of_their_tokens() -> None:
    content = [token(" 1", 0.6, **{" 1": 0.6, " 2": 0.3, " None": 0.05, "x": 0.05})]
    assert probabilities(content) == pytest.approx([0.6, 0.3, 0.05, 0])


def test_a_token_behind_a_blank_counts_with_the_blanks_probability() -> None:
    content = [
        token(" ", 0.8, **{" ": 0.8, " None": 0.2}),
        token("1", 0.5, **{"1": 0.5, "2": 0.25}),
        token("2", 1.0, **{"2": 0.01}),
    ]
    assert probabilities(content) == pytest.approx([0.8 * 0.5, 0.8 * 0.25, 0.2, 0])
    two_blanks = [
        token(" ", 0.5, **{" ": 0.8}),
        token(" ", 0.5, **{"1": 0.5}),
        token("2", 1.0, **{"2": 1.0}),
    ]
    assert probabilities(two_blanks)[:2] == pytest.approx([0.5 * 0.5, 0])


def test_spellings_of_a_verdict_add_up() -> None:
    assert probabilities([token("1", 0.5, **{"1": 0.5, " 1": 0.2, "none": 0.1})]) == pytest.approx(
        [0.7, 0, 0.1, 0]
    )


def test_nothing_counts_behind_a_word_that_is_no_verdict() -> None:
    assert probabilities([token("x", 1.0, x=1.0), token("1", 1.0, **{"1": 1.0})]) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "choice", [{}, {"logprobs": {}}, *({"logprobs": {"content": c}} for c in (None, [], "Yes"))]
)
def test_a_choice_without_log_probabilities_is_rubbish(choice: Any) -> None:
    with pytest.raises(MalformedReplyError, match=r"^no log-probabilities in the reply"):
        verdict_log_probabilities(choice, ("Yes", "No"))


@pytest.mark.parametrize(
    ("word", "candidates"),
    [
        ("1", {}),
        ("\u25811", {"\u25811": 0.9}),
        ("\u0120None", {"\u0120none": 0.9}),
        ("1", {"1": 0.5, "\u01202": 0.4}),
        ("\u2581", {"\u2581": 0.9}),
        ("token_id:32", {"token_id:32": 0.9, "token_id:33": 0.1}),
    ],
)
def test_what_is_no_text_is_no_answer(word: str, candidates: dict[str, float]) -> None:
    with pytest.raises(MalformedReplyError, match=r"empty top_logprobs|piece of a vocabulary"):
        probabilities([token(word, 0.9, **candidates)])


def test_a_blank_without_candidates_behind_it_is_no_answer() -> None:
    with pytest.raises(MalformedReplyError, match="an empty top_logprobs"):
        probabilities([token(" ", 0.9, **{" ": 0.9}), token("1", 0.9)])


def test_letters_that_vocabularies_use_for_blanks_may_be_texts() -> None:
    unlikely = {"1": 0.9, "\u0120": 0.001, "\u2581x": 0.001}
    assert probabilities([token("1", 0.9, **unlikely)])[0] == pytest.approx(0.9)


def of_one(word: Any, logprob: Any) -> list[Any]:
    return [{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": word, "logprob": logprob}]}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([None], "of another form"),
        ([{"token": "1"}], "of another form"),
        (of_one(None, 0.0), "of another form"),
        (of_one("Yes", "0"), "of another form"),
        (of_one("Yes", 1e9), "of another form"),
        (of_one("Yes", 1.0), "of more than probability 1"),
        (of_one("Yes", math.nan), "of more than probability 1"),
        (of_one("Yes", 0.01), "of more than probability 1"),
    ],
)
def test_log_probabilities_that_cannot_be_are_rubbish(content: Any, words: str) -> None:
    with pytest.raises(MalformedReplyError, match=f"^log-probabilities {words} in the reply"):
        verdict_log_probabilities({"logprobs": {"content": content}}, ("1", "2", "None", "Yes"))


def test_rounding_above_one_is_no_fault() -> None:
    assert probabilities(of_one("Yes", 0.009))[3] == pytest.approx(1, abs=0.01)
    assert probabilities(of_one("Yes", -1e9))[3] == 0
