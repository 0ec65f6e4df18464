"""What annotators by language models share: labels of log-probabilities, and what is said to be sent back."""

from __future__ import annotations

import math

from motif_jax.core.verdicts import PAIR, SINGLE
from motif_jax.motif.annotation.annotator import Question, make_annotator
from motif_jax.motif.annotation.chat import check_chat, json_option, without_surrogates
from tests.conftest import REPOSITORY
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text
from tests.reward_fixtures import annotation_config

MASSES = [
    (0.5, 0.2, 0.1),
    (0.1, 0.2, 0.1),
    (0.1, 0.2, 0.3),
    (0.25, 0.125, 0.25),
    (0.0, 0.5, 0.0),
    (0.01, 0.01, 0.02),
    (0.025, 0.025, 0.0),
    (0.7, 0.2, 0.2),
    (0.0, 0.25),
    (0.25, 0.25),
    (0.0, 0.0),
]
CHATS = [
    {"sampling.top_k": 0},
    {"sampling.top_k": -1},
    {"vllm.engine": "[]"},
    {"vllm.engine": "{"},
    {"sampling.temperature": 0.0, "answer.retry": False},
    {"sampling.seeded": False, "compat.oni_label_anywhere": True},
    {"seed": 3, "compat.answer_first_match": True, "captions.status": True},
    {"prompt.version": "reworded", "goal": "gold", "answer.mode": "verdict"},
    {"answer.mode": "soft"},
    {"goal": "fame"},
    {"answer.minimum_mass": 0.0, "answer.mode": "soft"},
]


def openai(**values):
    return annotation_config({"annotator": "openai", "openai.model": "m", **values})


def test_what_an_answer_depends_on_and_labels_of_probabilities(record):
    lines = []
    for values in CHATS:
        config = openai(**values)
        lines += [
            outcome_text(json_option, config, "vllm.engine"),
            outcome_text(check_chat, config, folder=REPOSITORY)[:200],
        ]
        annotator = outcome_text(make_annotator, config)
        if not annotator.startswith("UserError"):
            annotator = make_annotator(config, PAIR)
            questions = (Question("a" * 32, ("x", "y"), attempt=attempt) for attempt in (0, 1))
            seeds = [annotator.seed(annotator.open(question)) for question in questions]
            lines += [f"{annotator.short_name} {seeds} {annotator.identity}"]
    for masses in MASSES:
        form = PAIR if len(masses) == 3 else SINGLE
        annotator = make_annotator(openai(**{"answer.mode": "soft"}), form)
        dialogue = annotator.open(Question("a" * 32, ("text",) * len(form.items), form))
        dialogue.turns = []
        logs = [math.log(mass) if mass else -math.inf for mass in masses]
        lines += [str(annotator.soft(dialogue, logs, "so"))]
    assert_matches_packed_recording("chat", {"lines": "\n".join(lines)}, record)


def test_halves_of_characters_are_replaced():
    assert without_surrogates("\ud83d\ude00 é a\ud83db\udc00") == "\U0001f600 é a\ufffdb\ufffd"
