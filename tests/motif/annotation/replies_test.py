"""Replies of servers: what counts as an answer, and what does not."""

from __future__ import annotations

import math

from motif_jax.motif.annotation.replies import checked, verdict_log_probabilities
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Yes"}}
USAGES = [
    None,
    {"prompt_tokens": 7, "completion_tokens": None, "prompt_tokens_details": None},
    {"prompt_tokens": "many", "prompt_tokens_details": [1]},
    {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
    {"prompt_tokens": 1 << 40, "completion_tokens": -1},
    {"prompt_tokens": (1 << 40) - 1, "completion_tokens": 0},
    {"prompt_tokens": int("9" * 4000), "completion_tokens": 1.5},
]
NO_CHOICES = (
    [], {"0": CHOICE}, [None], [{}], [{"message": "Yes"}], [{"message": {"content": ["Yes"]}}],
    [{"message": {}}], [CHOICE, {}],
)  # fmt: skip


def token(word, share, **candidates):
    listed = [{"token": text, "logprob": math.log(mass)} for text, mass in candidates.items()]
    return {"token": word, "logprob": math.log(share), "top_logprobs": listed}


TOP = [
    (None, 0.0),
    ("Yes", "0"),
    ("Yes", 1e9),
    ("Yes", 1.0),
    ("Yes", math.nan),
    ("Yes", 0.009),
    ("Yes", 0.01),
    ("Yes", -1e9),
]
TOKENS = [
    [token(" 1", 0.6, **{" 1": 0.6, " 2": 0.3, " None": 0.05, "x": 0.05})],
    # A blank first: what follows counts with its probability, and nothing behind it.
    [
        token(" ", 0.8, **{" ": 0.8, " None": 0.2}),
        token("1", 0.5, **{"1": 0.5, "2": 0.25}),
        token("2", 1.0, **{"2": 0.01}),
    ],
    [token(" ", 0.5, **{" ": 0.8}), token(" ", 0.5, **{"1": 0.5}), token("2", 1.0, **{"2": 1.0})],
    # Two spellings of one verdict; what follows a word that is none does not count.
    [token("1", 0.5, **{"1": 0.5, " 1": 0.2, "none": 0.1})],
    [token("x", 1.0, x=1.0), token("1", 1.0, **{"1": 1.0})],
    None,
    [],
    "Yes",
    [None],
    [{"token": "1"}],
    *([{"token": "Yes", "logprob": 0.0, "top_logprobs": [{"token": t, "logprob": p}]}] for t, p in TOP),
]


def test_what_is_an_answer_with_which_tokens_and_probabilities(record):
    replies = [{"choices": [CHOICE], "usage": usage} for usage in USAGES]
    replies += [None, {}, *({"choices": choices} for choices in NO_CHOICES)]
    lines = [outcome_text(checked, reply) for reply in replies]
    choices = [{}, {"logprobs": {}}, *({"logprobs": {"content": content}} for content in TOKENS)]
    lines += [
        outcome_text(verdict_log_probabilities, choice, ("1", "2", "None", "Yes")) for choice in choices
    ]
    assert_matches_packed_recording("replies", {"lines": "\n".join(lines)}, record)
