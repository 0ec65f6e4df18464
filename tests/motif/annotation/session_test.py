"""Sessions: what is written when, who is asked again, what a failure leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import shards
from motif_jax.motif.annotation.annotator import Answer, Prices, Question
from motif_jax.motif.annotation.labels import labels_of_pairs
from motif_jax.motif.annotation.questions import QuestionHasher, caption_questions
from motif_jax.motif.annotation.session import AnnotationSession, Telemetry
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer
from tests.motif.annotation.scripted_annotator import Scripted

QUESTIONS = [Question(f"{n:032x}", (str(n), "x")) for n in range(10)]


def test_an_engine_that_ends_with_the_stage_is_no_failure(tmp_path, capsys):
    signs = iter([False, False, False, False, True, True, True])
    with AnnotationSession(Scripted(4), tmp_path / "store", stopped=lambda: next(signs)) as session:
        answers = session.ask(QUESTIONS, {})
    assert answers.keys() == {question.id for question in QUESTIONS[-4:]}
    assert AnswerStore(tmp_path / "store").find({q.id for q in QUESTIONS}) == answers
    assert capsys.readouterr().err == "while stopping: UserError: the server is gone\n"


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (Answer(7), "a label among 0, 1, 2, 3"),
        (Answer(FIRST, (0.5, 0.5)), "3 probabilities, of first, second, tie"),
        (Answer(FIRST, (0.9, 0.4, 0.1)), "probabilities of 0 or more whose sum is 1"),
        (Answer(FIRST, (1.5, -0.5, 0.0)), "probabilities of 0 or more whose sum is 1"),
        (Answer(FIRST, (math.nan,) * 3), "probabilities of 0 or more whose sum is 1"),
        (Answer(FIRST, (0.2, 0.7, 0.1)), "the label of the most probable verdict"),
    ],
)
def test_an_answer_that_contradicts_itself_names_its_annotator(tmp_path, answer, allowed):
    class Wrong(Scripted):
        def annotate(self, questions):
            yield 0, Answer(SECOND, (0.1, 0.8, 0.1))
            yield 1, answer

    with (
        AnnotationSession(Wrong(), tmp_path / "store") as session,
        pytest.raises(UserError, match=rf"^the annotator .*:.*Wrong gave .* must be {allowed}$"),
    ):
        session.ask(QUESTIONS, {})
    stored = AnswerStore(tmp_path / "store").find({question.id for question in QUESTIONS})
    assert stored == {QUESTIONS[0].id: StoredAnswer(SECOND, (0.1, 0.8, 0.1))}


@pytest.mark.parametrize("answer", [Answer(TIE, (0.4, 0.4, 0.2)), Answer(FIRST, (0.5, 0.5, 0.0))])
def test_a_tie_or_an_equally_probable_label_is_an_answer(tmp_path, answer):
    class Unsure(Scripted):
        def annotate(self, questions):
            yield 0, answer

    with AnnotationSession(Unsure(), tmp_path / "store") as session:
        assert session.ask(QUESTIONS[:1], {})[QUESTIONS[0].id].label == answer.label


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
    for expected_asked, expected_hits in ((1, 0), (0, 1)):
        with AnnotationSession(Scripted(), tmp_path / "store") as session:
            session.ask(twice, session.recall(twice, {}))
        assert session.telemetry.questions == 1
        assert session.telemetry.asked == expected_asked
        assert session.telemetry.store_hits == expected_hits


def telemetry_of_two_answers() -> Telemetry:
    """Two of five questions are asked: one is retried, the other has no answer."""
    telemetry = Telemetry(
        PAIR, Prices(prompt=2.0, cached=1.0, completion=8.0), questions=5, store_hits=3
    )
    telemetry.begin()
    telemetry.answered(Answer(TIE, tokens=(100, 10, 50), retried=True))
    telemetry.answered(Answer(UNKNOWN, tokens=(50, 5, 0), mass=0.5, note="too long"))
    telemetry.seconds = 3.0
    return telemetry


def test_a_session_counts_answers_tokens_and_costs():
    """100 of 150 tokens of prompts cost 2, 50 cost 1, and 15 of answers 8 for a million."""
    assert telemetry_of_two_answers().summary() == {
        "questions": 5,
        "store_hits": 3,
        "asked": 2,
        "tie_share": 0.5,
        "unknown_share": 0.5,
        "retried_share": 0.5,
        "questions_per_second": pytest.approx(2 / 3),
        "tokens_per_second": pytest.approx(165 / 3),
        "mean_verdict_mass": 0.5,
        "unknown_notes": {"too long": 1},
        "cut_answers": 0,
        "seconds": 3.0,
        "prompt_tokens": 150,
        "completion_tokens": 15,
        "cached_tokens": 50,
        "cost": pytest.approx((100 * 2 + 50 * 1 + 15 * 8) / 1e6),
    }


def test_a_running_session_shows_shares_rates_and_costs():
    assert telemetry_of_two_answers().live() == {
        "tie": 0.5,
        "unknown": 0.5,
        "tokens_per_second": pytest.approx(55),
        "prefix_cached": pytest.approx(1 / 3),
        "cost": pytest.approx(0.00037),
    }


def test_a_session_that_asks_nothing_has_shares_of_zero():
    summary = Telemetry(PAIR).summary()
    assert summary.pop("unknown_notes") == {}
    assert set(summary.values()) == {0}
    assert "cost" not in summary


ORIGIN = {
    "format": 1,
    "name": "mine",
    "annotator": {"model": "a", "sampling": {"seed": 0}},
    "dataset": {"pairs": 3},
    "questions": {"digest": "x"},
    "versions": {"vllm": "1"},
}
ANSWERS = {QUESTIONS[0].id: StoredAnswer(FIRST, (0.5, 0.25, 0.25), 2, 0.75)}
ANSWERS |= {QUESTIONS[1].id: StoredAnswer(UNKNOWN)}


@pytest.fixture
def annotation(tmp_path):
    """The first of two shards has two answers."""
    annotation = shards.Annotation(tmp_path, "mine", ORIGIN)
    annotation.write_shard(0, 2, QUESTIONS[:2], ANSWERS)
    return annotation


def test_a_shard_holds_answers_as_the_store_does(annotation):
    assert annotation.read_shard(0, 2) == ANSWERS
    assert annotation.read_shard(1, 2) == {}


def test_shards_of_other_versions_go_on(annotation, tmp_path):
    other = shards.Annotation(tmp_path, "mine", ORIGIN | {"versions": {"vllm": "2"}})
    other.check()
    assert other.read_shard(0, 2) == ANSWERS


@pytest.mark.parametrize("section", shards.BINDING)
def test_shards_of_another_origin_are_refused(annotation, tmp_path, section):
    other = shards.Annotation(tmp_path, "mine", ORIGIN | {section: {"other": 1}})
    words = rf"belongs to another annotation .*{section}\.other: absent before, 1 now.*: choose another --config\.name"
    with pytest.raises(UserError, match=words):
        other.check()
    assert other.read_shard(0, 2) == {}


def test_answers_without_a_manifest_are_no_shard(annotation):
    annotation.shard_path(0, 2).with_suffix(".json").unlink()
    assert annotation.read_shard(0, 2) == {}


def test_a_discard_leaves_other_shards_of_its_count(annotation):
    annotation.discard(1, 2)
    assert list(annotation.manifests()) == [(0, 2)]


def test_a_discard_removes_shards_of_another_count(annotation):
    annotation.discard(0, 3)
    assert list(annotation.folder.iterdir()) == []


PAIRS = [("a", "b"), ("b", "a"), ("a", "a"), ("a", "c")]


def test_one_answer_serves_both_orders_of_a_pair():
    questions = caption_questions(PAIRS, 4, QuestionHasher({}), "once")
    labels = {("a", "b"): FIRST, ("b", "a"): SECOND, ("a", "c"): TIE, ("c", "a"): TIE}

    merged = labels_of_pairs(
        questions, [StoredAnswer(labels[q.items]) for q in questions.questions]
    )

    assert merged.labels.tolist() == [FIRST, SECOND, TIE, TIE]
    assert merged.position_bias is None


def test_answers_to_both_orders_are_averaged():
    questions = caption_questions(PAIRS, 4, QuestionHasher({}), "both")
    # (a, c) has no answer: the mean is that of the other order alone.
    answers = {
        ("a", "b"): StoredAnswer(FIRST, (0.7, 0.2, 0.1)),
        ("b", "a"): StoredAnswer(FIRST, (0.5, 0.4, 0.1)),
        ("a", "c"): StoredAnswer(UNKNOWN),
        ("c", "a"): StoredAnswer(SECOND, (0.1, 0.8, 0.1)),
    }

    merged = labels_of_pairs(
        questions, [answers[question.items] for question in questions.questions]
    )

    expected = [[0.55, 0.35, 0.1], [0.35, 0.55, 0.1], [0, 0, 1], [0.8, 0.1, 0.1]]
    np.testing.assert_allclose(merged.probabilities, expected, atol=1e-6)
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, FIRST]
    # Of the pairs with an answer in both orders, the caption shown first won each time.
    assert merged.position_bias["pairs"] == 2
    assert merged.position_bias["first_share"] == 1
