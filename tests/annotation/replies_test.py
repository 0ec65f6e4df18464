"""Replies of servers: what counts as an answer, and what does not."""

from __future__ import annotations

import math

import pytest

from motif_jax.annotation.replies import Rubbish, checked, verdict_log_probabilities

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Yes"}}


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, (0, 0, 0)),
        ({}, (0, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": 2}, (7, 2, 0)),
        ({"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}, (7, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (7, 2, 4)),
        ({"prompt_tokens": "many", "prompt_tokens_details": [1]}, (0, 0, 0)),
        ([], (0, 0, 0)),
    ],
)  # fmt: skip
def test_tokens_are_those_that_are_told(usage, counts):
    assert checked({"choices": [CHOICE], "usage": usage}) == (counts, CHOICE)


@pytest.mark.parametrize(
    "reply",
    [
        None, "text", [], {}, {"choices": None}, {"choices": []}, {"choices": {"0": CHOICE}}, {"choices": [None]},
        {"choices": [{}]}, {"choices": [{"message": "Yes"}]}, {"choices": [{"message": {"content": ["Yes"]}}]},
    ],
)  # fmt: skip
def test_what_holds_no_answer_is_rubbish(reply):
    with pytest.raises(Rubbish):
        checked(reply)


def token(word, share, *candidates):
    listed = [{"token": text, "logprob": math.log(mass)} for text, mass in candidates]
    return {"token": word, "logprob": math.log(share), "top_logprobs": listed}


def test_a_blank_before_a_verdict_counts_with_its_probability():
    first = token(" ", 0.5, (" ", 0.5), ("yes", 0.25))
    second = token("No", 0.75, ("No", 0.75), (" YES ", 0.25))
    found = verdict_log_probabilities({"logprobs": {"content": [first, second]}}, ("No", "Yes"))
    assert found == pytest.approx([math.log(0.375), math.log(0.375)])
    assert verdict_log_probabilities(
        {"logprobs": {"content": [second, first]}}, ("No", "Maybe")
    ) == pytest.approx([math.log(0.75), -math.inf])


@pytest.mark.parametrize(
    "said",
    [
        None, {}, {"content": None}, {"content": []}, {"content": "Yes"}, {"content": [None]}, {"content": [{"token": "Yes"}]},
        {"content": [{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": None, "logprob": 0.0}]}]},
        {"content": [{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": "Yes", "logprob": "0"}]}]},
        {"content": [{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": "Yes", "logprob": 1e9}]}]},
    ],
)  # fmt: skip
def test_other_log_probabilities_are_rubbish(said):
    with pytest.raises(Rubbish):
        verdict_log_probabilities({"logprobs": said}, ("No", "Yes"))
