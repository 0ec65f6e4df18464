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
    """Answers in reverse order, and fails after so many answers."""

    identity = {"annotator": "scripted"}
    short_name = "scripted"

    def __init__(self, fails_after=None):
        self.fails_after = fails_after

    def annotate(self, questions):
        for answered, place in enumerate(reversed(range(len(questions)))):
            if answered == self.fails_after:
                raise UserError("the server is gone")
            yield place, Answer(FIRST)


def test_an_engine_that_ends_with_the_stage_is_no_failure(tmp_path, capsys):
    signs = iter([False, False, False, False, True, True, True])
    with AnnotationSession(Scripted(4), tmp_path / "store", stopped=lambda: next(signs)) as session:
        answers = session.ask(QUESTIONS, {})
    assert answers.keys() == {question.id for question in QUESTIONS[-4:]}
    assert AnswerStore(tmp_path / "store").find({q.id for q in QUESTIONS}) == answers
    assert capsys.readouterr().err == "while stopping: UserError: the server is gone\n"


def test_an_annotator_that_leaves_questions_out_is_no_endless_loop(tmp_path):
    class Lazy(Scripted):
        def annotate(self, questions):
            yield 0, Answer(FIRST)

    with AnnotationSession(Lazy(), tmp_path / "store") as session:
        with pytest.raises(RuntimeError, match="Lazy left questions without an answer"):
            session.ask(QUESTIONS, {})
        assert len(session.ask(QUESTIONS[:1], {})) == 1


def test_a_question_that_is_given_twice_is_no_store_hit(tmp_path):
    twice = [QUESTIONS[0]] * 2
    for asked, hits in ((1, 0), (0, 1)):
        with AnnotationSession(Scripted(), tmp_path / "store") as session:
            session.ask(twice, session.recall(twice, {}))
        told = session.telemetry
        assert (told.questions, told.asked, told.store_hits) == (1, asked, hits)


def test_shards_of_another_origin_are_refused_whatever_versions_made_them(tmp_path):
    sections = {"annotator": {"model": "a", "sampling": {"seed": 0}}, "dataset": {"pairs": 3}}
    old = {"format": 1, "name": "mine", **sections, "questions": {"digest": "x"}, "versions": {"vllm": "1"}}
    annotation = shards.Annotation(tmp_path, "mine")
    annotation.open_shard(0, 1, old).close()
    annotation.check({**old, "versions": {"vllm": "2"}})
    for section in shards.BINDING:
        with pytest.raises(UserError, match=r"belongs to another annotation \(.*--config.restart=True"):
            annotation.check({**old, section: {"other": 1}})
    now = {"model": "b" * 400, "sampling": {"seed": 0}, "goal": "gold"}
    with pytest.raises(
        UserError, match=r"\(annotator.goal: absent before, gold now; annotator.model: a before"
    ):
        annotation.check({**old, "annotator": now})


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
