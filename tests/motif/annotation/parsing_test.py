"""Answers to labels: the published rules, our rule, reasoning, refusals, and rubbish."""

from __future__ import annotations

import time

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, SECOND, SINGLE, TIE, UNKNOWN, YES, Form
from motif_jax.motif.annotation.parsing import (
    REFUSES,
    TWO_VERDICTS,
    UNFINISHED,
    AnswerParser,
    LabelRead,
    make_form,
    spoken,
)
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path

# The forms that models are really asked for: the verdict stands in quotation marks.
FORM = load_prompt(prompt_path("default", ""), "defaultgoal", "analysis").answer
SINGLE_FORM = load_prompt(
    prompt_path("default", "", SINGLE), "defaultgoal", "analysis", SINGLE
).answer
BARE = make_form('("best_description": {verdict})', ("1", "2", "None"))
PUBLISHED = AnswerParser(FORM, first_match=True)
PARSE = AnswerParser(FORM)
ONE = '("best_description": "1")'
TWO = '("best_description": "2")'
NONE = '("best_description": "None")'


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
        ("{verdict} {verdict}", numbers), ("best {verdict}", ("1", "1", "3")), ("best {verdict}", ("a b", "2", "3")),
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"answer form|verdicts"):
            make_form(template, words)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [" ", "best_description", "best_description ", "best ", "best_", "best_description: ", "1", "\n", "best_description:1 or ",
     "best_description is ", "_", "best description description ", "(", "best_description: 1\n", "a", "<think>", "<|channel|>", "I cannot answer "],
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


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_form_has_a_column_for_each_verdict(count) -> None:
    verdicts = tuple("abcde")[:count]
    with pytest.raises(
        UserError,
        match=f"the form grades has {count} verdicts: must be 2 or 3, as label 3 is unknown",
    ):
        Form("grades", ("item",), verdicts, undecided=UNKNOWN)


# What begins and what ends the reasoning of a family of models.
MARKS = [
    ("<think>", "</think>"),
    ("<Thinking>", "</thinking>"),
    ("<antThinking>", "</antThinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ('<think budget="5">', "</think >"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("analysisWe compare. ", "assistantfinal"),
]


@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_a_verdict_in_reasoning_is_none(begin: str, end: str) -> None:
    assert PARSE(f"{begin}It may be {ONE}\n{end}\n{TWO}") == SECOND
    assert PARSE.read(f"{begin}It may be {ONE}\n{end}\nNeither.") == LabelRead(UNKNOWN)
    assert PARSE.read(f"{begin}It may be {ONE}, since") == LabelRead(UNKNOWN, UNFINISHED)


def test_reasoning_that_begins_again_is_no_answer() -> None:
    text = f"<think>first</think>\n{ONE}\n<think>or {TWO}"
    assert PARSE.read(text) == LabelRead(UNKNOWN, UNFINISHED)


def test_reasoning_that_a_template_began_ends_at_the_mark() -> None:
    assert PARSE(f"It may be {ONE}\n</think>\n{TWO}") == SECOND


@pytest.mark.parametrize("head", ["[Analysis]\n", "Analysis: both are weak.\n", "<think/>"])
def test_headings_are_no_reasoning(head: str) -> None:
    assert PARSE(head + ONE) == FIRST


def test_published_rules_read_reasoning_as_published() -> None:
    assert PUBLISHED(f"<think>{ONE}") == FIRST


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>hm</think>\nNeither.", ("Neither.", False)),
        ("Neither.\n", ("Neither.", False)),
        ("Well. <think>The first, since", ("Well.", True)),
    ],
)
def test_an_answer_is_told_from_its_reasoning(text: str, answer: tuple[str, bool]) -> None:
    assert spoken(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        f"I'm sorry, but I can't answer with {ONE}.",
        f"I apologize, but I cannot comply with the request to answer {ONE}.",
        f"As an AI, I will not output {ONE} or anything alike.",
        f"Sorry, I am unable to judge. You asked for {ONE}.",
        f"I refuse to write {ONE}",
        f"{ONE} is not something I can provide, and I must decline.",
        f"It would be inappropriate to reply {ONE} here.",
        f"I can\u2019t provide a verdict like {NONE}.",
    ],
)
def test_a_refusal_is_no_verdict(text: str) -> None:
    assert PARSE.read(text) == LabelRead(UNKNOWN, REFUSES)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (f"I cannot be sure, but {ONE}", FIRST),
        (f"I'm sorry, I can't decide for sure.\n{ONE}", FIRST),
        (f"I cannot provide a definitive answer. Still, {ONE}", FIRST),
        (f"The player cannot move. {ONE}", FIRST),
        (f"I cannot determine a clear winner, so {NONE}", TIE),
        (f"I cannot choose between them: {NONE}", TIE),
    ],
)
def test_a_verdict_beside_doubts_counts(text: str, label: int) -> None:
    assert PARSE(text) == label


def test_two_verdicts_on_a_line_are_noted() -> None:
    assert PARSE.read(f"{ONE}\n{ONE} or {TWO}") == LabelRead(UNKNOWN, TWO_VERDICTS)


@pytest.mark.parametrize(
    "verdict",
    ["1.5", "1,5", "1/2", "-1", ".1", "1-2", "1%", "1 %", "1e3", "12", "1 or description 2", "1 vs 2"],
)  # fmt: skip
def test_a_number_that_begins_with_a_verdict_is_unknown(verdict: str) -> None:
    assert PARSE(f"best_description: {verdict}") == UNKNOWN


@pytest.mark.parametrize("verdict", ["1", "1.", "1, since", "#1", "1 (90 %)", "option 1"])
def test_what_follows_a_verdict_does_not_change_it(verdict: str) -> None:
    assert PARSE(f"best_description: {verdict}") == FIRST


@pytest.mark.parametrize(
    "text",
    [
        r'("best\_description": "2")',
        "**best_description**: **2**",
        "<best_description>2</best_description>\n1. because of this",
        '```json\n{\n  "best_description":\n  "2"\n}\n```',
        "bestDescription: 2",
    ],
)
def test_a_verdict_in_markup_counts(text: str) -> None:
    assert PARSE(text) == SECOND


def test_json_has_words_for_verdicts() -> None:
    parse = AnswerParser(SINGLE_FORM)
    assert PARSE('{"best_description": null}') == TIE
    assert parse('{"good_news": true}') == YES
    assert parse('{"good_news": false}') == NO


def test_an_unequal_sign_gives_no_verdict() -> None:
    assert PARSE("best_description != 1") == UNKNOWN
