"""Prompt files: the five goals in two versions, and files of one's own."""

from __future__ import annotations

import functools
import itertools
import json
import re

import pytest
import yaml

from motif_jax.core.verdicts import FORMS, NO, PAIR, SINGLE, YES
from motif_jax.motif.annotation.config import Captions
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import (
    MODES,
    label_name,
    load_prompt,
    model_tag,
    prompt_path,
)
from tests.conftest import REPOSITORY

GOALS = ("defaultgoal", "zeroknowledge", "combat", "gold", "stairs")
VERSIONS = ("default", "reworded")
EVERY = list(itertools.product(VERSIONS, GOALS, MODES))


@functools.cache
def published(form):
    """Every published prompt for questions of `form`, by version, goal and mode."""
    return {(v, g, m): load_prompt(prompt_path(v, "", form), g, m, form) for v, g, m in EVERY}


def in_every_published_prompt(test):
    """Runs a test for each form, version, goal and mode."""
    by_key = pytest.mark.parametrize(("version", "goal", "mode"), EVERY)
    return pytest.mark.parametrize("form", FORMS)(by_key(test))


def items_of(form):
    """Captions that are hard to quote."""
    return ('He said "hi" \\ {second}\nYou die...', "{goal} {first} {item} é")[: len(form.items)]


@in_every_published_prompt
def test_a_question_quotes_its_items_once_and_has_no_gaps(form, version, goal, mode):
    prompt = published(form)[version, goal, mode]
    items = items_of(form)
    *system, question = prompt.conversation(*items)
    assert system == [{"role": "system", "content": prompt.system}]
    text = rest = question["content"]
    for quoted in (json.dumps(item, ensure_ascii=False) for item in items):
        assert text.count(quoted) == 1
        rest = rest.replace(quoted, "")
    assert not re.search(r"\{(goal|examples|first|second|item)\}", rest), "left in items alone"


@in_every_published_prompt
def test_a_question_has_its_goal_and_examples(form, version, goal, mode):
    prompt = published(form)[version, goal, mode]
    text = prompt.conversation(*items_of(form))[-1]["content"]
    assert (prompt.goal == "") == (goal == "zeroknowledge")
    assert (prompt.examples == "") == (form is PAIR or goal == "zeroknowledge")
    assert prompt.goal in text
    assert prompt.examples in text
    assert "\n\n\n" not in text


@in_every_published_prompt
def test_a_question_asked_again_names_each_answer(form, version, goal, mode):
    prompt = published(form)[version, goal, mode]
    conversation = prompt.conversation(*items_of(form))
    *_, answered, again = prompt.retried(conversation, "Hm.")
    assert (answered["role"], again["role"]) == ("assistant", "user")
    for answer in prompt.answer.answers:
        assert answer in conversation[-1]["content"]
        assert answer in again["content"]


@in_every_published_prompt
def test_each_answer_of_a_prompt_is_parsed_as_its_label(form, version, goal, mode):
    answer_form = published(form)[version, goal, mode].answer
    for label, answer in enumerate(answer_form.answers):
        for first_match in (False, True):
            assert AnswerParser(answer_form, first_match)(f"Some text.\n{answer}") == label
    if form is SINGLE:
        assert [answer_form.verdicts[label] for label in (NO, YES)] == ["No", "Yes"]


def own_file(tmp_path, change, form=PAIR):
    tree = yaml.load(prompt_path("default", "", form).read_text(), yaml.BaseLoader)
    change(tree)
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_file_of_ones_own_goes_before_the_version():
    assert str(prompt_path("older", "own")) == "own"
    assert (
        prompt_path("reworded", "", SINGLE) == REPOSITORY / "configs/prompts/single/reworded.yaml"
    )


def test_without_a_system_text_the_question_comes_first(tmp_path):
    prompt = load_prompt(
        own_file(tmp_path, lambda tree: tree.update(system="")), "gold", "analysis"
    )
    assert [turn["role"] for turn in prompt.conversation("a", "b")] == ["user"]


def test_a_goal_may_have_a_dot_in_its_name(tmp_path):
    path = own_file(
        tmp_path, lambda tree: tree.update(goals={"level.2": "Get down.", "level": {"2": "x"}})
    )
    assert load_prompt(path, "level.2", "analysis").goal == "Get down."


def test_a_goal_may_be_described_by_nothing(tmp_path):
    path = own_file(tmp_path, lambda tree: tree.update(goals={"gold": ""}))
    assert load_prompt(path, "gold", "analysis").goal == ""


def test_names_by_the_published_scheme():
    name = "meta-llama/Llama-2-70b-chat-hf"
    shown = Captions()
    assert label_name(name, shown, "defaultgoal", "default") == "llama70b_msg_defaultgoal_default"
    both = Captions(status=True)
    assert label_name(name, both, "gold", "reworded") == "llama70b_msg_minbl_gold_reworded"
    status = Captions(messages=False, status=True)
    assert label_name(name, status, "gold", "reworded") == "llama70b_minbl_gold_reworded"
    tags = {
        "meta-llama/Llama-2-7b-chat-hf": "llama7b",
        "Qwen/Qwen2.5-7B-Instruct": "qwen2-5-7b-instruct",
    }
    tags |= {"a/Llama-2-7b-chat/": "llama7b", "Llama-2-7b": "llama-2-7b", "-": "model"}
    assert {model: model_tag(model) for model in tags} == tags
    assert "." not in label_name("a.b/c.d", shown, "own.goal", "v1.2")
