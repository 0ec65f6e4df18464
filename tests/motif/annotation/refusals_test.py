"""A refusal that quotes a form gives no verdict, and neither does a number that begins with one."""

from __future__ import annotations

import pytest

from motif_jax.core.verdicts import FIRST, TIE, UNKNOWN
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path

PARSE = AnswerParser(load_prompt(prompt_path("default", ""), "defaultgoal", "analysis").answer)
ONE = '("best_description": "1")'
NONE = '("best_description": "None")'


@pytest.mark.parametrize(
    "text",
    [
        f"I'm sorry, but I can't answer with {ONE}.",
        f"I can’t answer this with {ONE}",
        f"I apologize, but I cannot comply with the request to answer {ONE}.",
        f"As an AI, I will not output {ONE} or anything alike.",
        f"Sorry, I am unable to judge. You asked for {ONE}.",
        f"I refuse to write {ONE}",
        f"{ONE} is not something I can provide, and I must decline.",
        f"It would be inappropriate to reply {ONE} here.",
        f"I can't provide a verdict like {NONE}.",
        f"I cannot say in the form {ONE} which is better.",
    ],
)
def test_a_quoted_form_is_no_verdict(text):
    assert PARSE(text) == UNKNOWN


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (f"I cannot be sure, but {ONE}", FIRST),
        (f"I'm sorry, I can't decide for sure.\n{ONE}", FIRST),
        (
            f"I cannot tell for certain, but here is my answer in the requested format:\n{ONE}",
            FIRST,
        ),
        (f"The player cannot move. {ONE}", FIRST),
        (f"I cannot determine a clear winner, so {NONE}", TIE),
        (f"I cannot choose between them: {NONE}", TIE),
    ],
)
def test_a_verdict_beside_doubts_counts(text, label):
    assert PARSE(text) == label


@pytest.mark.parametrize(
    "verdict",
    [
        "1.5",
        '"1.5"',
        "1,5",
        "\u00bd",
        "1/2",
        "1/3",
        "-1",
        "0.1",
        ".1",
        "1-2",
        "1%",
        "1e3",
        "12",
        "1 or description 2",
        "1 vs 2",
    ],
)
def test_a_number_that_begins_with_a_verdict_is_unknown(verdict):
    assert PARSE(f"best_description: {verdict}") == UNKNOWN


def test_a_last_line_with_such_a_number_cancels_the_verdict():
    assert PARSE("best_description: 2\nNo, best_description: 1.5") == UNKNOWN


@pytest.mark.parametrize("verdict", ["1", "1.", "1, since", "1.0", "#1", "1 (90 %)", "option 1"])
def test_what_follows_a_verdict_does_not_change_it(verdict):
    assert PARSE(f"best_description: {verdict}") == FIRST


def test_another_sign_than_equal_gives_no_verdict():
    assert PARSE("best_description != 1") == UNKNOWN
