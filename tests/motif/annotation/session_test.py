"""Sessions: what is written when, who is asked again, what a failure leaves."""

from __future__ import annotations

import numpy as np
import pytest
from ml_collections import ConfigDict

from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, PAIR, SECOND, TIE, UNKNOWN
from motif_jax.motif.annotation import shards
from motif_jax.motif.annotation.annotator import Annotator, Answer, Preview, Prices, Question
from motif_jax.motif.annotation.dry_run import report_dry_run
from motif_jax.motif.annotation.questions import QuestionHasher, QuestionList, caption_questions
from motif_jax.motif.annotation.session import AnnotationSession
from motif_jax.motif.annotation.store import AnswerStore, StoredAnswer
from motif_jax.motif.annotation.telemetry import Telemetry
from tests.recorded_outputs import assert_matches_packed_recording, outcome_text

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


def test_what_a_session_counts(record):
    told = Telemetry(PAIR, Prices(prompt=2.0, cached=1.0, completion=8.0), questions=5, store_hits=3)
    said = {"role": "assistant", "content": "1"}
    told.begin()
    told.answered(Answer(TIE, tokens=(100, 10, 50), turns=({"role": "user", "content": "?"}, said, said)))
    told.answered(Answer(UNKNOWN, tokens=(50, 5, 0), turns=(said,), mass=0.5, note="too long"))
    told.seconds = 3.0
    lines = [str(told.summary()), str(told.live()), str(Telemetry(PAIR).summary())]
    assert_matches_packed_recording("telemetry", {"lines": "\n".join(lines)}, record)


def test_what_a_dry_run_tells(tmp_path, capsys, record):
    pairs = [("a", "b"), ("a", "b"), ("c", "c"), ("a", "c"), *((f"{n}", "d") for n in range(500))]
    listed, store = caption_questions(pairs, 504, QuestionHasher({}), "given"), AnswerStore(tmp_path)
    store.keep([(listed.questions[0], Answer(FIRST))])
    config = ConfigDict({"num_shards": 2, "store_dir": "s", "measured_rate": None, "dry_run_pairs": 3})
    full = '{"asked": 2, "completion_tokens": 80, "questions_per_second": 9}'
    shown, parts = [Preview("?", 300, exact=False), Preview("?", 1200), Preview("?")], {}
    for last, config.measured_rate in ((full, 0.5), (full, None), ('{"asked": 0}', None), (None, None)):
        (tmp_path / "summary.json").write_text(last) if last else (tmp_path / "summary.json").unlink()
        for place, preview in enumerate(shown):
            annotator = Scripted()
            annotator.prices = None if place else Prices(2.0, 2.0, 8.0)
            annotator.preview = lambda question, preview=preview: preview
            report_dry_run(config, tmp_path, annotator, listed, store)
            printed = capsys.readouterr().out.replace(str(tmp_path), "RUN")
            parts[f"{last} {config.measured_rate} {place}"] = printed
    assert_matches_packed_recording("dry_run", parts, record)


def test_shards_of_another_origin_are_refused_whatever_versions_made_them(tmp_path, record):
    sections = {"annotator": {"model": "a", "sampling": {"seed": 0}}, "dataset": {"pairs": 3}}
    old = {"format": 1, "name": "mine", **sections, "questions": {"digest": "x"}, "versions": {"vllm": "1"}}
    annotation = shards.Annotation(tmp_path, "mine")
    annotation.open_shard(0, 1, old).close()
    changes = [{"versions": {"vllm": "2"}}, *({section: {"other": 1}} for section in shards.BINDING)]
    changes += [{"annotator": {"model": "b" * 400, "sampling": {"seed": 0}, "goal": "gold"}}]
    lines = [outcome_text(annotation.check, old | change, folder=tmp_path) for change in changes]
    assert_matches_packed_recording("other_origins", {"lines": "\n".join(lines)}, record)


def test_a_shard_has_one_writer_and_its_manifest_all_versions(tmp_path):
    annotation = shards.Annotation(tmp_path, "mine")
    shard = annotation.open_shard(0, 2, {"versions": {"vllm": "1"}})
    told = "shard 0 of 2 of annotation mine is being written by another process"
    with pytest.raises(UserError, match=told):
        annotation.open_shard(0, 2, {})
    shard.add([(QUESTIONS[0], StoredAnswer(FIRST)), (QUESTIONS[1], StoredAnswer(UNKNOWN))])
    kept = [StoredAnswer(FIRST, (1, 0, 0)), StoredAnswer(UNKNOWN)]
    assert shard.answers() == {QUESTIONS[n].id: answer for n, answer in enumerate(kept)}
    shard.close()
    for version in ("2", "1", "2"):
        annotation.open_shard(0, 2, {"versions": {"vllm": version}}).close()
    manifest = shards.read_manifest(annotation.shard_path(0, 2, "json"))
    listed = QuestionList(QUESTIONS[:4], np.zeros((1, 1)), np.zeros((1, 1)))
    for other, found in ((manifest, ([*kept, None, None], [1])), ({"name": "other"}, ([None] * 4, [0, 1]))):
        assert annotation.read_answers(listed, 2, other) == found
    assert manifest == {"versions": {"vllm": "1"}, "later_versions": [{"vllm": "2"}]}
    left = annotation.discard(1, 2), list(annotation.manifests())
    assert left == (2, [(0, 2)]), "of another process, which keeps them"
    assert (annotation.discard(0, 3), list(annotation.manifests()), annotation.known_labels()) == (2, [], 0)


def test_merge_of_both_orders_and_of_ties():
    pairs = [("a", "b"), ("b", "a"), ("a", "a"), ("a", "c")]
    hasher = QuestionHasher({})
    once = caption_questions(pairs, 4, hasher, "once")
    by_captions = {("a", "b"): FIRST, ("b", "a"): SECOND, ("a", "c"): TIE, ("c", "a"): TIE}
    merged = shards.merge(once, [StoredAnswer(by_captions[q.items]) for q in once.questions])
    assert (merged.labels.tolist(), merged.position_bias) == ([FIRST, SECOND, TIE, TIE], None)
    both = caption_questions(pairs, 4, hasher, "both")
    soft = {("a", "b"): (0.7, 0.2, 0.1), ("b", "a"): (0.5, 0.4, 0.1), ("c", "a"): (0.1, 0.8, 0.1)}
    found = [soft.get(q.items) for q in both.questions]
    merged = shards.merge(both, [StoredAnswer(UNKNOWN if p is None else int(np.argmax(p)), p) for p in found])
    expected = [[0.55, 0.35, 0.1], [0.35, 0.55, 0.1], [0, 0, 1], [0.8, 0.1, 0.1]]
    np.testing.assert_allclose(merged.probabilities, expected, atol=1e-6)
    assert merged.labels.tolist() == [FIRST, SECOND, TIE, FIRST]
    assert (merged.position_bias["pairs"], merged.position_bias["first_share"]) == (2, 1)
