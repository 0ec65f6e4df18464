"""Sessions: what is written when, who is asked again, what a failure leaves."""

from __future__ import annotations

import numpy as np
import pytest

from motif_jax.datasets.verdicts import FIRST, SECOND, TIE, UNKNOWN
from motif_jax.labels import shards
from motif_jax.labels.annotator import Annotator, Answer, Question
from motif_jax.labels.questions import QuestionHasher, caption_questions
from motif_jax.labels.session import AnnotationSession
from motif_jax.labels.store import AnswerStore, StoredAnswer
from motif_jax.support.errors import UserError

QUESTIONS = [Question(f"{n:032x}", (str(n), "x")) for n in range(10)]


class Scripted(Annotator):
    """Answers in reverse order; says UNKNOWN to odd questions until they were asked `patience` times."""

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
        with AnnotationSession(annotator, tmp_path / "store", flush_seconds=0, **options) as session:
            known = shard.answers() if known is None else known
            try:
                answers = session.ask(QUESTIONS, known, limit=limit, keep=shard.add)
                settled = not session.unsettled(QUESTIONS, answers)
            finally:
                shard.close()
        return settled, shard.answers(), session.telemetry

    return ask


def test_all_are_asked_once_and_kept_in_both_layers(ask, tmp_path):
    annotator = Scripted()
    settled, answers, telemetry = ask(annotator)
    assert settled
    assert [n for n, _ in annotator.heard] == list(reversed(range(10)))
    assert set(answers) == {question.id for question in QUESTIONS}
    stored = AnswerStore(tmp_path / "store").find(answers)
    assert stored.keys() == answers.keys()
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


def test_a_failure_keeps_what_was_answered(ask):
    with pytest.raises(UserError, match="gone"):
        ask(Scripted(fails_after=4))
    annotator = Scripted()
    _, answers, _ = ask(annotator)
    assert len(annotator.heard) == 6
    assert len(answers) == 10


def test_an_engine_that_ends_with_the_stage_is_no_failure(ask, capsys):
    annotator = Scripted(fails_after=4)
    signs = iter([False, False, False, False, True, True, True])
    settled, answers, _ = ask(annotator, stopped=lambda: next(signs))
    assert not settled
    assert len(answers) == 4
    assert capsys.readouterr().err == "while stopping: UserError: the server is gone\n"


def test_an_annotator_that_leaves_questions_out_is_no_endless_loop(tmp_path):
    class Lazy(Scripted):
        def annotate(self, questions):
            yield 0, Answer(FIRST)

    with AnnotationSession(Lazy(), tmp_path / "store") as session:
        with pytest.raises(RuntimeError, match="Lazy left questions without an answer"):
            session.ask(QUESTIONS)
        assert len(session.ask(QUESTIONS[:1])) == 1


def test_a_question_that_is_given_twice_is_no_store_hit(tmp_path):
    for asked, hits in ((1, 0), (0, 1)):
        with AnnotationSession(Scripted(), tmp_path / "store") as session:
            session.ask([QUESTIONS[0]] * 3)
        told = session.telemetry
        assert (told.questions, told.asked, told.store_hits) == (1, asked, hits)


def test_merge_of_both_orders_and_of_ties():
    pairs = [("a", "b"), ("b", "a"), ("a", "a"), ("a", "c")]
    hasher = QuestionHasher({})
    once = caption_questions(pairs, 4, hasher, "once")
    by_captions = {("a", "b"): FIRST, ("b", "a"): SECOND, ("a", "c"): TIE, ("c", "a"): TIE}
    merged = shards.merge(once, [StoredAnswer(by_captions[q.items]) for q in once.questions])
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, TIE]
    assert merged.position_bias is None
    both = caption_questions(pairs, 4, hasher, "both")
    soft = {("a", "b"): (0.7, 0.2, 0.1), ("b", "a"): (0.5, 0.4, 0.1), ("c", "a"): (0.1, 0.8, 0.1)}
    found = [soft.get(q.items) for q in both.questions]
    merged = shards.merge(both, [StoredAnswer(UNKNOWN if p is None else int(np.argmax(p)), p) for p in found])
    expected = [[0.55, 0.35, 0.1], [0.35, 0.55, 0.1], [0, 0, 1], [0.8, 0.1, 0.1]]
    np.testing.assert_allclose(merged.probabilities, expected, atol=1e-6)
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, FIRST]
    assert merged.position_bias["pairs"] == 2
    assert merged.position_bias["first_share"] == 1
