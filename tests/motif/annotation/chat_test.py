"""What annotators by language models share: labels of log-probabilities, and what is said to be sent back."""

from __future__ import annotations

import math

import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import Question, make_annotator, with_annotator_defaults
from motif_jax.motif.annotation.chat import check_chat, json_option, without_surrogates
from tests.reward_fixtures import annotation_config


def openai(**values):
    return annotation_config({"annotator": "openai", "openai.model": "m", **values})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sampling.top_k": 0}, r"config\.sampling\.top_k=0: must be at least 1, or -1 for no limit"),
        (
            {"goal": "fame"},
            r"config\.goal=fame: must be one of defaultgoal, zeroknowledge, combat, gold, stairs",
        ),
    ],
)
def test_values_that_no_chat_can_have_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        check_chat(with_annotator_defaults(openai(**values)))


@pytest.mark.parametrize("text", ["[]", "{"])
def test_an_option_that_is_no_json_object_is_refused(text):
    with pytest.raises(UserError, match=r"config\.vllm\.engine=.*: must be a JSON object"):
        json_option(openai(**{"vllm.engine": text}), "vllm.engine")


def seeds(**values):
    annotator = make_annotator(openai(**values), PAIR)
    questions = [Question("a" * 32, ("x", "y"), attempt=attempt) for attempt in (0, 1)]
    return [annotator.seed(annotator.open(question)) for question in questions]


def test_each_attempt_has_a_seed_of_its_own():
    first, second = seeds()
    assert first != second
    assert seeds() == [first, second]
    assert seeds(seed=3) != [first, second]


@pytest.mark.parametrize(
    "values",
    [
        {"sampling.temperature": 0.0, "answer.retry": False},
        {"sampling.seeded": False},
        {"answer.mode": "soft"},
    ],
)
def test_answers_that_draw_nothing_have_no_seed(values):
    assert seeds(**values) == [None, None]


def identity(**values):
    return make_annotator(openai(**values), PAIR).identity


@pytest.mark.parametrize(
    "values",
    [
        {"openai.model": "other"},
        {"goal": "gold"},
        {"prompt.version": "reworded"},
        {"answer.mode": "verdict"},
        {"answer.retry": False},
        {"sampling.temperature": 0.0},
        {"sampling.seeded": False},
        {"seed": 3},
        {"compat.answer_first_match": True},
        {"compat.oni_label_anywhere": True},
    ],
    ids=str,
)
def test_the_identity_holds_what_an_answer_depends_on(values):
    assert identity(**values) != identity()


@pytest.mark.parametrize(
    "values", [{"openai.retries": 1}, {"openai.concurrency": 3}, {"openai.base_url": "http://x/v1"}]
)
def test_how_a_server_is_reached_is_no_part_of_the_identity(values):
    assert identity(**values) == identity()


def test_an_annotation_is_called_by_model_goal_and_prompt():
    names = {
        "m_msg_defaultgoal_default": {},
        "m_msg_minbl_defaultgoal_default": {"captions.status": True},
        "m_msg_gold_reworded": {"prompt.version": "reworded", "goal": "gold"},
    }
    for name, values in names.items():
        assert make_annotator(openai(**values), PAIR).short_name == name


def soft_answer(masses, **values):
    form = PAIR if len(masses) == 3 else SINGLE
    annotator = make_annotator(openai(**{"answer.mode": "soft", **values}), form)
    dialogue = annotator.open(Question("a" * 32, ("text",) * len(form.items), form))
    return annotator.soft(dialogue, [math.log(mass) if mass else -math.inf for mass in masses], "so")


@pytest.mark.parametrize(
    ("masses", "label"),
    [
        ((0.5, 0.2, 0.1), FIRST),
        ((0.1, 0.2, 0.1), SECOND),
        ((0.1, 0.2, 0.3), TIE),
        ((0.25, 0.125, 0.25), TIE),
        ((0.0, 0.5, 0.0), SECOND),
        ((0.025, 0.025, 0.0), TIE),
        ((0.7, 0.2, 0.2), FIRST),
        ((0.0, 0.25), YES),
        ((0.25, 0.25), UNKNOWN),
    ],
)
def test_a_soft_answer_is_the_share_of_each_verdict(masses, label):
    answer = soft_answer(masses)
    assert answer.probabilities == pytest.approx([mass / sum(masses) for mass in masses])
    assert answer.label == label
    assert answer.mass == pytest.approx(min(sum(masses), 1.0))


@pytest.mark.parametrize("masses", [(0.01, 0.01, 0.02), (0.0, 0.0)])
def test_verdicts_of_little_probability_are_no_answer(masses):
    answer = soft_answer(masses)
    assert (answer.label, answer.probabilities) == (UNKNOWN, None)
    assert answer.note == "the verdicts have little probability"


def test_halves_of_characters_are_replaced():
    assert without_surrogates("\ud83d\ude00 é a\ud83db\udc00") == "\U0001f600 é a\ufffdb\ufffd"
