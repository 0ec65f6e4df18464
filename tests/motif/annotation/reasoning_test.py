"""Reasoning of all families is told from what is answered."""

from __future__ import annotations

import pytest

from motif_jax.core.verdicts import FIRST, SECOND, UNKNOWN
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import load_prompt, prompt_path
from motif_jax.motif.annotation.reasoning import as_earlier_turn, spoken

FORM = load_prompt(prompt_path("default", ""), "defaultgoal", "analysis").answer
PARSE = AnswerParser(FORM)
ONE = '("best_description": "1")'
TWO = '("best_description": "2")'
# What begins and what ends the reasoning of a family.
MARKS = [
    ("<think>", "</think>"),
    ("<Think>", "</THINK>"),
    ("<thinking>", "</thinking>"),
    ("<antThinking>", "</antThinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<scratchpad>", "</scratchpad>"),
    ('<think budget="5">', "</think >"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("analysisWe compare. ", "assistantfinal"),
    ("&lt;think&gt;", "&lt;/think&gt;"),
    ("\\<think\\>", "\\</think\\>"),
]


@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_a_verdict_in_closed_reasoning_is_none(begin, end):
    assert PARSE(f"{begin}It may be {ONE}\n{end}\n{TWO}") == SECOND
    assert PARSE(f"{begin}It may be {ONE}\n{end}\nI do not know.") == UNKNOWN


@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_a_verdict_in_open_reasoning_is_none(begin, end):
    assert PARSE(f"{begin}It may be {ONE}, since the") == UNKNOWN


@pytest.mark.parametrize(
    ("begin", "end"), [marks for marks in MARKS if not marks[0].startswith("analysis")]
)
def test_reopened_reasoning_is_no_answer(begin, end):
    assert PARSE(f"{begin}first{end}\n{ONE}\n{begin}or {TWO}") == UNKNOWN


@pytest.mark.parametrize(
    "end", ["</think>", "</thinking>", "[/THINK]", "<|END_THINKING|>", "assistantfinal"]
)
def test_what_a_template_began_ends_at_the_mark(end):
    assert PARSE(f"It may be {ONE}\n{end}\n{TWO}") == SECOND


def test_blocks_may_stand_in_each_other():
    assert PARSE(f"<think>a<think>b</think>{ONE}</think>{TWO}") == SECOND
    assert PARSE(f"<think>a<think>b</think>{ONE}") == UNKNOWN
    assert PARSE(f"<think><reasoning>b</reasoning>{ONE}") == UNKNOWN


def test_another_channel_than_the_final_one_is_reasoning():
    assert (
        PARSE(f"<|channel|>analysis<|message|>a<|end|><|channel|>commentary<|message|>{ONE}")
        == UNKNOWN
    )


@pytest.mark.parametrize(
    "head",
    [
        "[Analysis]\nBoth are weak.\n[Answer]\n",
        "Analysis: both are weak.\n",
        "Thinking...\n",
        "<think/>",
        "Here is my thought process:\n",
    ],
)
def test_headings_are_no_reasoning(head):
    assert PARSE(head + ONE) == FIRST


def test_the_end_of_a_message_keeps_the_answer():
    assert PARSE(f"{ONE}<|end|>") == FIRST


def test_published_rules_read_reasoning_as_published():
    assert AnswerParser(FORM, first_match=True)(f"<think>{ONE}") == FIRST


def test_an_answer_is_sent_back_without_its_reasoning():
    assert as_earlier_turn("<think>hm</think>\nNeither.") == "Neither."
    assert as_earlier_turn("  Plain, as it came.\n") == "  Plain, as it came.\n"


def test_cut_reasoning_is_sent_back_without_its_marks():
    assert as_earlier_turn("<|channel|>analysis<|message|>The first, since") == "The first, since"


def test_spoken_says_where_an_answer_ends():
    assert spoken("a <think>b</think> c") == ("a  c", False)
    assert spoken("a <think>b") == ("a", True)
