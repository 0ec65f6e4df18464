"""Asking: what is written when, who is asked again, and what a failure in the middle leaves."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest

from motif_jax.annotation import shards
from motif_jax.annotation.annotator import FIRST, SECOND, TIE, UNKNOWN, Annotator, Answer, Question
from motif_jax.annotation.asking import Asking
from motif_jax.annotation.conversations import ConversationLog, read_conversations
from motif_jax.annotation.questions import QuestionHasher, caption_questions
from motif_jax.annotation.store import AnswerStore, StoredAnswer
from motif_jax.annotation.telemetry import Telemetry
from motif_jax.support.errors import UserError

QUESTIONS = [Question(f"{n:032x}", (str(n), "x")) for n in range(10)]


class Scripted(Annotator):
    """Answers in reverse order; says UNKNOWN to odd questions until they were asked `patience` times."""

    reads_captions = True
    identity = {"annotator": "scripted"}
    short_name = "scripted"

    def __init__(self, patience=0, fails_after=None):
        self.patience = patience
        self.fails_after = fails_after
        self.heard = []

    def annotate(self, questions):
        for place in reversed(range(len(questions))):
            if self.fails_after is not None and len(self.heard) >= self.fails_after:
                raise UserError("the server is gone")
            question = questions[place]
            self.heard.append((int(question.id, 16), question.attempt))
            odd = int(question.id, 16) % 2
            yield place, Answer(UNKNOWN if odd and question.attempt < self.patience else FIRST)


@pytest.fixture
def ask(tmp_path):
    def ask(annotator, limit=None, known=None, **options):
        shard = shards.Annotation(tmp_path, "a").open_shard(0, 1, {"versions": {}})
        store = AnswerStore(tmp_path / "store")
        telemetry = Telemetry()
        try:
            asking = Asking(annotator, store, shard, telemetry, flush_seconds=0, **options)
            settled = asking.ask(QUESTIONS, shard.answers() if known is None else known, limit)
        finally:
            shard.close()
            store.close()
        return settled, shard.answers(), telemetry

    return ask


def test_all_are_asked_once_and_kept_in_both_layers(ask, tmp_path):
    annotator = Scripted()
    settled, answers, telemetry = ask(annotator)
    assert settled
    assert [n for n, _ in annotator.heard] == list(reversed(range(10)))
    assert set(answers) == {question.id for question in QUESTIONS}
    stored = AnswerStore(tmp_path / "store").find(answers)
    assert {key: answer.label for key, answer in stored.items()} == {
        key: a.label for key, a in answers.items()
    }
    assert telemetry.asked == 10
    ask(annotator)
    assert len(annotator.heard) == 10


def test_unknown_ones_are_asked_again_alone(ask):
    annotator = Scripted(patience=2)
    settled, answers, _ = ask(annotator)
    assert settled
    assert [answers[q.id].label for q in QUESTIONS] == [FIRST, UNKNOWN] * 5
    settled, answers, _ = ask(annotator, attempts=2)
    assert annotator.heard[10:] == [(n, 1) for n in (9, 7, 5, 3, 1)]
    assert answers[QUESTIONS[1].id] == StoredAnswer(UNKNOWN, attempts=2)
    # The same again asks nothing; the third time they answer.
    ask(annotator, attempts=2)
    assert len(annotator.heard) == 15
    settled, answers, _ = ask(annotator, attempts=3)
    assert {answers[q.id].label for q in QUESTIONS} == {FIRST}
    assert len(annotator.heard) == 20


def test_attempts_in_one_run(ask):
    annotator = Scripted(patience=1)
    settled, answers, _ = ask(annotator, attempts=5)
    assert settled
    assert len(annotator.heard) == 15
    assert {answer.label for answer in answers.values()} == {FIRST}


def test_a_failure_keeps_what_was_answered(ask):
    with pytest.raises(UserError, match="gone"):
        ask(Scripted(fails_after=4))
    annotator = Scripted()
    _, answers, _ = ask(annotator)
    assert len(annotator.heard) == 6
    assert len(answers) == 10


def test_an_engine_that_ends_with_the_stage_is_no_failure(ask):
    annotator = Scripted(fails_after=4)
    signs = iter([False, False, False, False, True, True, True])
    settled, answers, _ = ask(annotator, stopped=lambda: next(signs))
    assert not settled
    assert len(answers) == 4


def test_limit_and_stop(ask):
    annotator = Scripted()
    assert not ask(annotator, limit=3)[0]
    assert len(annotator.heard) == 3
    settled, answers, _ = ask(annotator, stopped=lambda: len(annotator.heard) >= 5)
    assert not settled
    assert len(answers) == 5
    assert ask(annotator, limit=5)[0]


def test_conversations_survive_a_torn_end(tmp_path):
    log = ConversationLog(tmp_path, "a")
    for question in QUESTIONS[:3]:
        turns = ({"role": "user", "content": "é?"}, {"role": "assistant", "content": "1"})
        log.add([(question, Answer(SECOND, turns=turns))])
    assert [talk["id"] for talk in read_conversations(log.path)] == [q.id for q in QUESTIONS[:3]]
    assert gzip.decompress(log.path.read_bytes()).count(b"\n") == 3
    data = log.path.read_bytes()
    for cut in range(len(data)):
        log.path.write_bytes(data[:cut])
        assert len(list(read_conversations(log.path))) < 3
    assert ConversationLog(tmp_path, "a").path != log.path


def test_merge_of_both_orders_and_of_ties():
    pairs = [("a", "b"), ("b", "a"), ("a", "a"), ("a", "c")]
    hasher = QuestionHasher({})
    once = caption_questions(pairs, 4, hasher, "once")
    by_captions = {("a", "b"): FIRST, ("b", "a"): SECOND, ("a", "c"): TIE, ("c", "a"): TIE}
    merged = shards.merge(once, [StoredAnswer(by_captions[q.captions]) for q in once.questions])
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, TIE]
    assert merged.position_bias is None
    both = caption_questions(pairs, 4, hasher, "both")
    soft = {
        ("a", "b"): (0.7, 0.2, 0.1),
        ("b", "a"): (0.5, 0.4, 0.1),
        ("a", "c"): None,
        ("c", "a"): (0.1, 0.8, 0.1),
    }
    answers = [
        StoredAnswer(UNKNOWN)
        if soft[q.captions] is None
        else StoredAnswer(int(np.argmax(soft[q.captions])), soft[q.captions])
        for q in both.questions
    ]
    merged = shards.merge(both, answers)
    np.testing.assert_allclose(merged.probabilities[0], [0.55, 0.35, 0.1], atol=1e-6)
    np.testing.assert_allclose(merged.probabilities[1], [0.35, 0.55, 0.1], atol=1e-6)
    np.testing.assert_allclose(merged.probabilities[2], [0, 0, 1])
    np.testing.assert_allclose(merged.probabilities[3], [0.8, 0.1, 0.1], atol=1e-6)
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, FIRST]
    assert merged.position_bias["pairs"] == 2
    assert merged.position_bias["first_share"] == 1
    assert not math.isnan(merged.position_bias["consistent"])
