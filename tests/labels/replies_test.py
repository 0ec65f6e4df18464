"""Replies of servers: what counts as an answer, and what does not."""

from __future__ import annotations

import math

import pytest

from motif_jax.labels.replies import Rubbish, checked, verdict_log_probabilities

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Yes"}}


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, (0, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None}, (7, 0, 0)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (7, 2, 4)),
        ({"prompt_tokens": "many", "prompt_tokens_details": [1]}, (0, 0, 0)),
        ({"prompt_tokens": int("9" * 4000), "completion_tokens": -5}, (0, 0, 0)),
    ],
)  # fmt: skip
def test_tokens_are_those_that_are_told(usage, counts):
    assert checked({"choices": [CHOICE], "usage": usage}) == (counts, CHOICE)


NO_CHOICES = ([], {"0": CHOICE}, [None], [{}], [{"message": "Yes"}], [{"message": {"content": ["Yes"]}}])


@pytest.mark.parametrize("reply", [None, {}, *({"choices": choices} for choices in NO_CHOICES)])
def test_what_holds_no_answer_is_rubbish(reply):
    with pytest.raises(Rubbish):
        checked(reply)


def token(word, share, **candidates):
    listed = [{"token": text, "logprob": math.log(mass)} for text, mass in candidates.items()]
    return {"token": word, "logprob": math.log(share), "top_logprobs": listed}


@pytest.mark.parametrize(
    ("tokens", "shares"),
    [
        ([token(" 1", 0.6, **{" 1": 0.6, " 2": 0.3, " None": 0.05, "x": 0.05})], [0.6, 0.3, 0.05]),
        # A blank first: what follows counts with its probability.
        ([token(" ", 0.8, **{" ": 0.8, " None": 0.2}), token("1", 0.5, **{"1": 0.5, "2": 0.25})], [0.4, 0.2, 0.2]),
        # Two spellings of one verdict.
        ([token("1", 0.5, **{"1": 0.5, " 1": 0.2, "none": 0.1})], [0.7, 0, 0.1]),
        # What follows a word that is not a verdict does not count.
        ([token("x", 1.0, x=1.0), token("1", 1.0, **{"1": 1.0})], [0, 0, 0]),
    ],
)  # fmt: skip
def test_verdicts_are_read_from_log_probabilities(tokens, shares):
    found = verdict_log_probabilities({"logprobs": {"content": tokens}}, ("1", "2", "None"))
    assert [math.exp(value) for value in found] == pytest.approx(shares)


TOP = [(None, 0.0), ("Yes", "0"), ("Yes", 1e9), ("Yes", 1.0), ("Yes", math.nan)]
LISTED = [[{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": t, "logprob": p}]}] for t, p in TOP]
CONTENTS = (None, [], "Yes", [None], [{"token": "Yes"}], *LISTED)


@pytest.mark.parametrize("said", [None, {}, *({"content": content} for content in CONTENTS)])
def test_other_log_probabilities_are_rubbish(said):
    with pytest.raises(Rubbish):
        verdict_log_probabilities({"logprobs": said}, ("No", "Yes"))
