"""Labels of an annotator that answers at once, and the bookkeeping of every label service."""

from __future__ import annotations

import functools
import json
import random
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import Annotator, Answer, Prices
from motif_jax.motif.annotation.config import Budget, OnlineAnnotator, Queue
from motif_jax.motif.annotation.replies import ServerError
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.oni import label_config as online
from motif_jax.oni import label_queue, label_service
from motif_jax.oni.label_queue import Label, LabelBookkeeper
from motif_jax.oni.label_service import LabelService
from motif_jax.rl.config import agent_config
from motif_jax.schema import keys
from tests.end_to_end.annotate_datasets import conversations
from tests.processes import wait_until
from tests.recorded_outputs import assert_matches_packed_recording

KILL, WALL = ("You kill the newt!",), ("It's a wall.",)


class Counting(Annotator):
    """Yes where a text has a k, unknown where it has a u; remembers what it was asked."""

    forms = (SINGLE, PAIR)
    asked: list[tuple[str, ...]]
    identity = {"annotator": "counting"}
    short_name = "counting"

    def __init__(self, config, form, dataset=None):
        self.form = form
        type(self).asked = []

    def annotate(self, questions):
        for place, question in enumerate(questions):
            self.asked.append(question.items)
            if any("u" in item for item in question.items):
                yield place, Answer(UNKNOWN, tokens=(10, 0, 0))
            elif self.form is SINGLE:
                yield place, Answer(int("k" in question.items[0]), tokens=(10, 2, 0))
            else:
                label = FIRST if "k" in question.items[0] else SECOND if "k" in question.items[1] else TIE
                yield place, Answer(label, tuple(0.8 if n == label else 0.1 for n in range(3)))


def make_config(tmp_path, **values):
    config = schema.section({"annotator": keys(OnlineAnnotator), "queue": keys(Queue)})
    config.compat = ConfigDict({"oni_requeue": False})
    config.annotator.store_dir = str(tmp_path / "store")
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in values.items()})
    return agent_config(config)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(form=SINGLE, kind=f"{__name__}:Counting", **values):
        config = make_config(tmp_path, annotator__kind=kind, **values)
        online.check(config, form)
        source = LabelService(config, form)
        source.start()
        made.append(source)
        return source

    yield make
    for source in made:
        source.close()


def ask(source, *items, step=0):
    source.enqueue(items, [1] * len(items), None, step)
    return source.poll()


def test_each_distinct_question_is_asked_once(make, tmp_path):
    source = make()
    for _ in range(3):
        ask(source, ("k1",), ("b",))
    assert Counting.asked == [("b",), ("k1",)]
    assert {entry.items for entry in ask(make(), ("k1",), ("b",))} == {("b",), ("k1",)}
    third = make()
    told = {entry.items: (entry.label, entry.tokens) for entry in ask(third, ("k1",), ("c",))}
    assert (told, Counting.asked) == ({("k1",): (YES, 0), ("c",): (NO, 12)}, [("c",)])
    assert third.metrics()["annotator/from_store"] == 1


def test_a_run_without_a_store_has_its_own_and_keeps_conversations_on_request(tmp_path):
    config = make_config(tmp_path, annotator__store_dir="", annotator__keep_conversations=True)
    online.check(config, SINGLE)
    source = LabelService(online.in_run(config, tmp_path / "run"), SINGLE)
    source.start()
    assert len(ask(source, KILL, WALL)) == 2
    source.close()
    [path] = (tmp_path / "run" / online.CONVERSATIONS).iterdir()
    kept = {tuple(line["turns"][0]["content"]): line["label"] for line in conversations(path)}
    assert kept == {KILL: "yes", WALL: "no"}
    assert any((tmp_path / "run" / online.STORE).iterdir())
    assert config.annotator.store_dir == "", "what a user gave stays"


def test_equal_texts_are_a_tie_and_both_orders_of_two_are_one_question(make):
    source = make(PAIR)
    assert ask(source, ("a", "a")) == [Label(("a", "a"), TIE, 0.5)]
    assert ask(source, ("a", "a")) == []
    told = {one.items: (one.label, one.probability) for one in ask(source, ("k", "b"), ("b", "k"))}
    assert told == {("k", "b"): (FIRST, pytest.approx(0.85)), ("b", "k"): (SECOND, pytest.approx(0.15))}
    assert len(Counting.asked) == 1


def test_an_answer_without_a_verdict_is_no_label_and_asked_again_so_many_times(make):
    source = make(annotator__attempts=3)
    assert [ask(source, ("u",)) for _ in range(6)] == [[]] * 6
    assert Counting.asked == [("u",)] * 3
    counts = {"unknown": 3, "given_up": 1, "questions": 3, "answers": 0}
    assert {name: source.metrics()[f"annotator/{name}"] for name in counts} == counts
    assert (ask(make(annotator__attempts=3), ("u",)), Counting.asked) == ([], [])


@pytest.mark.parametrize("published", [False, True])
def test_requeue_asks_entries_as_published(make, published):
    source = make(compat__oni_requeue=published)
    source.enqueue([("k",), ("b",)], [2, 1], None, 0)
    source.enqueue([("k",)], [2], None, 1)
    told = source.poll()
    assert len(told) == len(Counting.asked) == (5 if published else 2)
    source = make(PAIR, compat__oni_requeue=published)
    ask(source, ("a", "a"))
    assert len(Counting.asked) == published


def test_a_key_is_named_as_the_config_has_it_and_a_file_as_it_is_called():
    said = "config.goal=a: config.compat.b, config.annotator.seed, config.yaml, config.seeds and config.annotator=c"
    with pytest.raises(UserError) as caught, online.in_section():
        raise UserError(said)
    named = said.replace("config.goal", "config.annotator.goal").replace(".annotator=", ".annotator.kind=")
    assert str(caught.value) == named


@pytest.mark.parametrize(
    ("form", "order", "published", "budget"),
    [
        (SINGLE, "frequent", False, {"questions": 20, "tokens_per_million_steps": 9_000_000}),
        (SINGLE, "newest", False, {"questions_per_million_steps": 200_000}),
        (SINGLE, "newest", True, {"tokens": 900}),
        (PAIR, "uncertain", False, {"tokens_per_million_steps": 4_000_000}),
        (PAIR, "newest", True, {"questions": 70, "tokens": 900}),
    ],
)
def test_the_books_of_a_drawn_training_that_is_resumed(form, order, published, budget, monkeypatch, record):
    now = [50.0]
    monkeypatch.setattr(
        label_queue, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 2 * now[0])
    )
    draw, lines, flying = random.Random(3), [], []
    queue = Queue(size=5, order=order, batch=3, budget=Budget(**budget))
    made = functools.partial(LabelBookkeeper, queue, 2, published, form, {"a": 1}, Prices(2.0, 1.0, 8.0))
    book = made()
    for step in range(90):
        now[0] += 0.75
        items = list(dict.fromkeys(tuple(draw.choices("abcdefg", k=len(form.items))) for _ in range(3)))
        scores = None if step < 9 else [draw.random() for _ in items]
        book.enqueue(items, [draw.randint(1, 3) for _ in items], scores, 2 * step)
        flying += book.take(draw.randint(0, 3))
        assert len(flying) == book.in_flight()
        for asked in [flying.pop(draw.randrange(len(flying))) for _ in range(min(2, len(flying)))]:
            label, tokens = draw.choice([*form.labels]), (draw.randint(9, 20), 3, 2)
            unsure = draw.random() < 0.3 or label == UNKNOWN
            shares = None if unsure else (0.5, 0.25, 0.25)[: len(form.verdicts)]
            answer = StoredAnswer(label, shares, asked.attempts + 1)
            if draw.random() < 0.3:
                book.failed(asked)
            else:
                book.answered(asked, answer, tokens if draw.random() < 0.8 else None, draw.random())
        lines += [f"{step} {[one.items for one in flying]} {book.queued()}"]
        if step % 30 == 20:
            lines += [str(state := json.loads(json.dumps(book.state())))]
            book, flying = made(), []
            book.restore(state)
        if step % 5 == 4:
            lines += [str(book.poll()), str(book.metrics())]
    assert_matches_packed_recording(
        f"books_{form.name}_{order}_{published}", {"lines": "\n".join(lines)}, record
    )


@pytest.mark.slow
def test_a_server_is_asked_again_beside_the_training_which_hears_of_a_full_disk(make, monkeypatch, capsys):
    gone = ServerError("is gone", "no connection")
    first, second = Answer(YES, tokens=(1, 1, 0)), Answer(YES, (0.25, 0.75), (9, 2, 0))
    outcomes = [gone, first, gone, second, OSError("full")]

    def submit(question):
        future, outcome = Future(), outcomes.pop(0)
        (future.set_exception if isinstance(outcome, Exception) else future.set_result)(outcome)
        return future

    server = Mock(identity={}, prices=None, concurrency=1, submit=submit)
    server.quiet_seconds.return_value = 0
    monkeypatch.setattr(label_service, "make_annotator", lambda *_: server)
    monkeypatch.setattr(label_service, "_LOOK_SECONDS", 0.005)
    service, told = make(kind="openai", annotator__openai__model="m"), []
    service.enqueue([("a",)], [4], None, 0)
    wait_until(lambda: told.extend(service.poll()) or told, "a label", 60, 0.01)
    assert [(one.items, one.label, one.probability, one.tokens) for one in told] == [(("a",), YES, 0.75, 11)]
    counts = {"server_up": 1, "failures": 1, "questions": 2, "in_flight": 0}
    assert {name: service.metrics()[f"annotator/{name}"] for name in counts} == counts
    lines = f"waits: {gone}", "has no answers: is gone; training continues", "answers again, after"
    assert capsys.readouterr().err.startswith("\n".join(f"the annotator {line}" for line in lines))
    with pytest.raises(OSError, match="full"):
        wait_until(lambda: service.enqueue([("b",)], [1], None, 0), "it is told", 60, 0.01)
