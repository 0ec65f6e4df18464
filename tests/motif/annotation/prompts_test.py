"""Prompt files: the five goals in two versions, and files of one's own."""

from __future__ import annotations

import functools
import itertools
import json
import re

import pytest
import yaml

from motif_jax.core.verdicts import FORMS, NO, PAIR, SINGLE, YES
from motif_jax.motif.annotation import prompts
from motif_jax.motif.annotation.parsing import AnswerParser
from motif_jax.motif.annotation.prompts import MODES, label_name, load_prompt, model_tag, prompt_path
from tests.conftest import REPOSITORY
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

GOALS = ("defaultgoal", "zeroknowledge", "combat", "gold", "stairs")
VERSIONS = ("default", "reworded")
EVERY = list(itertools.product(VERSIONS, GOALS, MODES))


@functools.cache
def published(form):
    """Every published prompt for questions of `form`, by version, goal and mode."""
    return {(v, g, m): load_prompt(prompt_path(v, "", form), g, m, form) for v, g, m in EVERY}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("version", "goal", "mode"), EVERY)
def test_every_published_combination_and_what_its_own_prompt_alone_understands(form, version, goal, mode):
    prompt = published(form)[version, goal, mode]
    items = ('He said "hi" \\ {second}\nYou die...', "{goal} {first} {item} é")[: len(form.items)]
    *system, question = prompt.conversation(*items)
    assert system == [{"role": "system", "content": prompt.system}]
    text = rest = question["content"]
    for quoted in (json.dumps(item, ensure_ascii=False) for item in items):
        assert text.count(quoted) == 1
        rest = rest.replace(quoted, "")
    assert not re.search(r"\{(goal|examples|first|second|item)\}", rest), "left in items alone"
    assert (prompt.goal == "") == (goal == "zeroknowledge")
    assert (prompt.examples == "") == (form is PAIR or goal == "zeroknowledge")
    assert [part in text for part in (prompt.goal, prompt.examples, "\n\n\n")] == [True, True, False]
    *_, answered, again = prompt.retried([*system, question], "Hm.")
    assert (answered["role"], again["role"]) == ("assistant", "user")
    for label, answer in enumerate(prompt.answer.answers):
        assert answer in text
        assert answer in again["content"]
        for first_match in (False, True):
            assert AnswerParser(prompt.answer, first_match)(f"Some text.\n{answer}") == label
    if form is SINGLE:
        assert [prompt.answer.verdicts[label] for label in (NO, YES)] == ["No", "Yes"]
    every = {key: other.items_of(text) for key, other in published(form).items() if key[2] != "soft"}
    understood = {key: said for key, said in every.items() if said is not None}
    assert understood == {(version, goal, "verdict" if mode == "soft" else mode): items}
    assert prompt.items_of(text + "!") is None


def own_file(tmp_path, change, form=PAIR):
    tree = yaml.load(prompt_path("default", "", form).read_text(), yaml.BaseLoader)
    change(tree)
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


CHANGES = [
    (PAIR, lambda tree: tree.pop("verdicts")),
    (PAIR, lambda tree: tree.pop("goals")),
    (PAIR, lambda tree: tree["goals"].pop("gold")),
    (PAIR, lambda tree: tree["question"].update(analysis="{goal} {first}")),
    (PAIR, lambda tree: tree["question"].update(analysis="{first} {second}")),
    (PAIR, lambda tree: tree["question"].pop("analysis")),
    (PAIR, lambda tree: tree.update(answer="1")),
    (PAIR, lambda tree: tree.update(retry=[1])),
    (PAIR, lambda tree: tree.update(retry=" ")),
    (PAIR, lambda tree: tree.update(system="")),
    (PAIR, lambda tree: tree.update(system=[])),
    (PAIR, lambda tree: tree.update(goals={"gold": ["x"]})),
    (PAIR, lambda tree: tree.update(goals=["gold"])),
    (PAIR, lambda tree: tree.update(verdicts="1")),
    (PAIR, lambda tree: tree.update(goals={"gold": ""})),
    (SINGLE, lambda tree: tree.update(examples=[{"item": "a"}])),
    (SINGLE, lambda tree: tree.update(examples=["a"])),
    (SINGLE, lambda tree: tree["examples"][0]["verdicts"].update(gold="maybe")),
    (SINGLE, lambda tree: tree["question"].update(analysis="{goal} {item}")),
    (
        SINGLE,
        lambda tree: tree.update(
            examples=[{"item": "a", "verdicts": {"gold": "yes"}}, {"item": "b", "verdicts": {"x": "no"}}]
        ),
    ),
    (PAIR, lambda tree: tree.update(question={"analysis": "x", "verdict": "{first}"})),
    (SINGLE, lambda tree: tree.update(question={"analysis": "x", "verdict": "y"})),
]


def test_a_bad_file_is_named(tmp_path, record):
    lines = []
    for form, change in CHANGES:
        path = own_file(tmp_path, change, form)
        lines += [outcome_text(load_prompt, path, "gold", "analysis", form, folder=tmp_path)]
        lines += [outcome_text(prompts.goals_of, path), outcome_text(prompts.forms_of, path, folder=tmp_path)]
    for text in ("[1, 2", "just a text", "[" * 2000):
        path.write_text(text)
        lines += [outcome_text(load_prompt, path, "gold", "analysis", folder=tmp_path)]
    lines += [outcome_text(load_prompt, tmp_path / "none", "gold", "analysis", folder=tmp_path)]
    given = ("older", ""), ("older", "own"), ("reworded", "", SINGLE)
    lines += [outcome_text(prompt_path, *one, folder=REPOSITORY) for one in given]
    assert_matches_packed_recording("prompts", {"lines": "\n".join(lines)}, record)
    prompt = load_prompt(own_file(tmp_path, lambda tree: tree.update(system="")), "gold", "analysis")
    assert [turn["role"] for turn in prompt.conversation("a", "b")] == ["user"]
    path = own_file(tmp_path, lambda tree: tree.update(goals={"level.2": "Get down.", "level": {"2": "x"}}))
    assert load_prompt(path, "level.2", "analysis").goal == "Get down."


def test_names_by_the_published_scheme():
    name = "meta-llama/Llama-2-70b-chat-hf"
    assert label_name(name, False, "defaultgoal", "default") == "llama70b_msg_defaultgoal_default"
    assert label_name(name, True, "gold", "reworded") == "llama70b_msg_minbl_gold_reworded"
    tags = {"meta-llama/Llama-2-7b-chat-hf": "llama7b", "Qwen/Qwen2.5-7B-Instruct": "qwen2-5-7b-instruct"}
    tags |= {"a/Llama-2-7b-chat/": "llama7b", "Llama-2-7b": "llama-2-7b", "-": "model"}
    assert {model: model_tag(model) for model in tags} == tags
    assert "." not in label_name("a.b/c.d", False, "own.goal", "v1.2")
