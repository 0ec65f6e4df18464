"""What annotators by language models share: labels of log-probabilities, and what is said to be sent back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from motif_jax.datasets.verdicts import FIRST, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.labels.annotator import Question, make_annotator
from motif_jax.labels.chat import without_surrogates
from motif_jax.sections.annotators import AnswerMode
from tests.reward_fixtures import annotation_config


def soft_config():
    return annotation_config({"annotator": "openai", "openai.model": "m", "answer.mode": "soft"})


@pytest.mark.parametrize(
    ("form", "masses", "label"),
    [
        (PAIR, (0.5, 0.2, 0.1), FIRST), (PAIR, (0.1, 0.2, 0.1), SECOND), (PAIR, (0.1, 0.2, 0.3), TIE),
        (PAIR, (0.25, 0.125, 0.25), TIE), (PAIR, (0.0, 0.5, 0.0), SECOND),
        (PAIR, (0.01, 0.01, 0.02), UNKNOWN), (SINGLE, (0.0, 0.25), YES), (SINGLE, (0.25, 0.25), UNKNOWN),
        (SINGLE, (0.0, 0.0), UNKNOWN),
    ],
)  # fmt: skip
def test_labels_of_probabilities(form, masses, label):
    annotator = make_annotator(soft_config(), form)
    dialogue = annotator.open(Question("a" * 32, ("text",) * len(form.items), form))
    answer = annotator.soft(dialogue, [math.log(mass) if mass else -math.inf for mass in masses], "so")
    assert (answer.label, answer.mass) == (label, pytest.approx(sum(masses)))
    if sum(masses) >= 0.05:
        assert answer.probabilities == pytest.approx([mass / sum(masses) for mass in masses])
    else:
        assert answer.probabilities is None
        assert answer.note


def test_halves_of_characters_are_replaced():
    assert without_surrogates("\ud83d\ude00 é a\ud83db\udc00") == "\U0001f600 é a\ufffdb\ufffd"


def test_soft_labels_of_another_least_mass_are_other_answers() -> None:
    config = soft_config()
    first = make_annotator(config, PAIR).identity
    config = replace(config, answer=AnswerMode(mode="soft", minimum_mass=config.answer.minimum_mass / 2))
    assert make_annotator(config, PAIR).identity != first
