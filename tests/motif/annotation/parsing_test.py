"""Answers to labels: the published rule, the default rule, and rubbish."""

from __future__ import annotations

import time

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, SECOND, SINGLE, TIE, UNKNOWN, YES, Form
from motif_jax.motif.annotation.parsing import AnswerParser, make_form
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path

# The forms that models are really asked for: the verdict stands in quotation marks.
FORM = load_prompt(prompt_path("default", ""), "defaultgoal", "analysis").answer
REWORDED = load_prompt(prompt_path("reworded", ""), "defaultgoal", "analysis").answer
SINGLE_FORM = load_prompt(
    prompt_path("default", "", SINGLE), "defaultgoal", "analysis", SINGLE
).answer
BARE = make_form('("best_description": {verdict})', ("1", "2", "None"))
PUBLISHED = AnswerParser(FORM, first_match=True)
PARSE = AnswerParser(FORM)


@pytest.mark.parametrize("form", [FORM, BARE])
def test_published_golden(golden, form):
    """Whatever stands around the verdict in the form that is asked for."""
    parse = AnswerParser(form, first_match=True)
    for case in golden("answer_parsing.json"):
        label = parse(case["answer"])
        assert label == case["label"], case
        again = parse(case["retry_answer"]) if label == UNKNOWN else label
        assert again == case["label_after_retry"], case
    for case in golden("more_cases.json")["answer_parsing"]["cases"]:
        assert parse(case["answer"]) == case["label"], case


LABELS = {
    '("best_description": 1)': FIRST,
    '("best_description": NONE)': TIE,
    "**best_description**: 2": SECOND,
    "The best description is 2.": SECOND,
    'best_description: "description_1"': FIRST,
    "best_description\n\n1": FIRST,
    "2": SECOND,
    "best_description: 10 because of gold": UNKNOWN,
    "best_description: I think 2": UNKNOWN,
    "Neither is better.": UNKNOWN,
    # The last line that holds a verdict.
    "best_description: 2\n\nHuman: sure?\nbest_description: 1": FIRST,
    "1. best_description: 1\n2. but on reflection\nbest_description: None": TIE,
    # Two verdicts in it.
    '("best_description": 1) ("best_description": 2)': UNKNOWN,
    '("best_description": 1) that is ("best_description": 1)': FIRST,
    '("best_description": 1 or 2)': UNKNOWN,
    'I will say (best_description: 1) or (best_description: 2).\n("best_description": 2)': SECOND,
    # Thoughts are no answer.
    "<think>best_description: 1</think>\nbest_description: 2": SECOND,
    "<think>best_description: 1</think>": UNKNOWN,
}


def test_default_rule():
    assert {text: PARSE(text) for text in LABELS} == LABELS


def test_bad_forms():
    numbers = ("1", "2", "3")
    for template, words in (
        ("{verdict} {verdict}", numbers), ("{verdict} it is", numbers), ("best {verdict}", ("1", "1", "3")), ("best {verdict}", ("a b", "2", "3")),
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"answer form|verdicts"):
            make_form(template, words)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [" ", "best_description", "best_description ", "best ", "best_", "best_description: ", "1", "\n", "best_description:1 or ",
     "best_description is ", "_", "best description description ", "(" , "best_description: 1\n", "a"],
)  # fmt: skip
@pytest.mark.parametrize("head", ["", "best_description", "best_description: is "])
def test_no_text_makes_it_hang(unit, head):
    # Quadratic time would take many seconds at this size, linear time takes a twentieth of one.
    text = head + unit * (100_000 // len(unit))
    start = time.process_time()
    PARSE(text)
    PUBLISHED(text)
    assert time.process_time() - start < 1.25


PAIR_FORM = make_form('("best": "{verdict}")', ["1", "2", "None"])
ANSWERED = [
    (SINGLE_FORM, 'Good.\n("good_news": "Yes")', YES, YES),
    (SINGLE_FORM, 'Is it a Yes? Hardly.\n("good_news": "No")', NO, YES),
    (SINGLE_FORM, "It was no good news at first.\ngood_news: yes", YES, NO),
    (SINGLE_FORM, "No.", NO, NO),
    (SINGLE_FORM, "good news: yes or no", UNKNOWN, NO),
    (SINGLE_FORM, "I cannot say.", UNKNOWN, NO),
    (SINGLE_FORM, '("good_news": "Yes") ("good_news": "No")', UNKNOWN, YES),
    (SINGLE_FORM, "Yesterday it was no.", UNKNOWN, NO),
    (PAIR_FORM, '("best": "2")', SECOND, SECOND),
    (PAIR_FORM, '("best": "1")\n("best": "2")', SECOND, FIRST),
    (PAIR_FORM, "Neither, I think.", UNKNOWN, TIE),
]


def test_the_last_line_with_a_verdict_or_a_token_anywhere():
    for form, text, *labels in ANSWERED:
        assert [
            AnswerParser(form, anywhere=anywhere)(text) for anywhere in (False, True)
        ] == labels, text


SMALL_FORM = load_prompt(prompt_path("small", ""), "defaultgoal", "analysis").answer


@pytest.mark.parametrize(
    ("form", "text", "label"),
    [
        (SINGLE_FORM, "The player found a passage, which is good news. No monster was met.", UNKNOWN),
        (SINGLE_FORM, "This is good news, no doubt.", UNKNOWN),
        (SINGLE_FORM, "Is this good news? No monster was met.", UNKNOWN),
        (SINGLE_FORM, '("good_news": "Yes")\n\nIn short this is good news. No danger remains.', YES),
        (SINGLE_FORM, "good news: no", NO),
        (SMALL_FORM, "Message B\n\nReason: the other message, a wall in the way, is bad news.", SECOND),
        (SMALL_FORM, "Message B\nThe first message a player would ignore.", SECOND),
        (SMALL_FORM, "Message A is better news.", FIRST),
        (SMALL_FORM, "message b", SECOND),
        (SMALL_FORM, "a", FIRST),
    ],
)  # fmt: skip
def test_words_side_by_side_in_prose_are_no_verdict(form, text: str, label: int) -> None:
    assert AnswerParser(form)(text) == label


def test_a_users_form_has_words_of_json() -> None:
    grades = Form("grades", ("item",), ("bad", "fair", "good"), undecided=UNKNOWN)
    parse = AnswerParser(make_form("grade: {verdict}", ("bad", "fair", "good"), grades))
    assert [parse(text) for text in ("grade: good", "grade: null", "null")] == [2, UNKNOWN, UNKNOWN]

    swapped = Form(
        "swapped", ("item",), ("yes", "no"), undecided=UNKNOWN, json_labels=(("true", 0),)
    )
    parse = AnswerParser(make_form("good: {verdict}", ("Yes", "No"), swapped))
    assert [parse(text) for text in ("good: true", "good: false", "good: no")] == [0, UNKNOWN, 1]


def test_a_refusal_quotes_a_last_verdict_without_tie() -> None:
    grades = Form("grades", ("item",), ("bad", "fair", "good"), undecided=UNKNOWN)
    text = "I cannot choose grade: good"
    tie = AnswerParser(make_form("grade: {verdict}", ("bad", "fair", "good")))
    assert tie(text) == TIE
    assert (
        AnswerParser(make_form("grade: {verdict}", ("bad", "fair", "good"), grades))(text)
        == UNKNOWN
    )


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_form_has_a_column_for_each_verdict(count) -> None:
    verdicts = tuple("abcde")[:count]
    with pytest.raises(
        UserError,
        match=f"the form grades has {count} verdicts: must be 2 or 3, as label 3 is unknown",
    ):
        Form("grades", ("item",), verdicts, undecided=UNKNOWN)
