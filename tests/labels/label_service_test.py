"""Labels of an annotator that answers at once, and the bookkeeping of every label service."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.datasets.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.labels import label_queue, label_service, online
from motif_jax.labels.annotator import Annotator, Answer, Prices, Question
from motif_jax.labels.label_queue import Label, LabelBookkeeper
from motif_jax.labels.label_service import LabelService
from motif_jax.labels.replies import ServerError
from motif_jax.labels.store import StoredAnswer
from motif_jax.schema import keys
from motif_jax.sections.agents import agent_config
from motif_jax.sections.annotators import Budget, OnlineAnnotator, Queue
from motif_jax.support.errors import UserError
from motif_jax.support.interruption import StoppedError
from tests.end_to_end.annotate_datasets import conversations
from tests.processes import wait_until
from tests.recorded_outputs import compared

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


def test_the_lexicon_labels_messages_and_pairs(make):
    source = make(kind="lexicon")
    told = ask(source, KILL, WALL, ("",))
    assert [(entry.items, entry.label) for entry in told] == [(("",), NO), (WALL, NO), (KILL, YES)]
    (told,) = ask(make(PAIR, kind="lexicon"), KILL + WALL)
    assert (told.items, told.label, told.probability > 0.5) == (KILL + WALL, FIRST, True)


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


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test counts, of the bookkeeper and the service."""
    now = [50.0]
    told = SimpleNamespace(monotonic=lambda: now[0], time=lambda: 2 * now[0])
    told.sleep = lambda seconds: now.append(now.pop() + seconds)
    for module in (label_queue, label_service):
        monkeypatch.setattr(module, "time", told)
    return now


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
def test_the_books_of_a_drawn_training_that_is_resumed(form, order, published, budget, clock, record):
    draw, lines, flying = random.Random(3), [], []
    queue = Queue(size=5, order=order, batch=3, budget=Budget(**budget))
    made = functools.partial(LabelBookkeeper, queue, 2, published, form, {"a": 1}, Prices(2.0, 1.0, 8.0))
    book = made()
    for step in range(90):
        clock[0] += 0.75
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
    compared(f"books_{form.name}_{order}_{published}", {"lines": "\n".join(lines)}, record)


GREETED, GONE = Answer(YES, tokens=(1, 1, 0)), ServerError("is gone", "no connection")


@pytest.fixture
def serve(tmp_path, clock, monkeypatch):
    """A service that waits 2.5 s for a server, and that server, with such outcomes of its first requests."""
    monkeypatch.setattr(label_service, "_LOOK_SECONDS", 0.005)
    config, made = make_config(tmp_path, annotator__kind="openai", annotator__wait_seconds=2.5), []

    def serve(*first, quiet=0.0):
        server = Mock(identity={}, prices=None, concurrency=2, futures=[], asked=[], first=list(first))
        server.quiet_seconds.return_value = quiet

        def submit(question=Question("", ("ping",))):  # noqa: B008
            server.asked.append(question.items[0])
            server.futures.append(Future())
            if server.first:
                ends(server.futures[-1], server.first.pop(0))
            return server.futures[-1]

        server.submit = server.ping = submit
        monkeypatch.setattr(label_service, "make_annotator", lambda *_: server)
        made.append(LabelService(config, SINGLE))
        return server, made[-1]

    yield serve
    for service in made * 2:
        service.close()


def ends(future, outcome):
    (future.set_exception if isinstance(outcome, Exception) else future.set_result)(outcome)


# At which second which question has what outcome, and then: what was asked, whether the server is up, questions in flight,
# queued, failed. One that failed is asked again after 1, 2, 4 s; a server after 0.5, 1 s, a quarter more or less, by one question.
COURSE = [
    (50.0, None, None, "ab", 1, 2, 2, 0),
    (52.5, 1, Answer(YES, (0.25, 0.75), (9, 2, 0)), "abc", 1, 2, 1, 0),
    (52.5, 2, GONE, "abcd", 1, 2, 1, 1),  # sent before the last answer: nobody is away
    (52.5, 3, GONE, "abcd", 1, 1, 2, 2),
    (53.5, None, None, "abcdb", 1, 2, 1, 2),
    (53.75, 5, GONE, "abcdb", 0, 1, 2, 3),
    (53.75, 4, GONE, "abcdb", 0, 0, 3, 4),
    (54.0, None, None, "abcdb", 0, 0, 3, 4),
    (54.75, None, None, "abcdbc", 0, 1, 2, 4),
    (54.75, 6, GONE, "abcdbc", 0, 0, 3, 5),
    (55.25, None, None, "abcdbc", 0, 0, 3, 5),
    (56.25, None, None, "abcdbcb", 0, 1, 2, 5),
    (56.25, 7, Answer(NO), "abcdbcbd", 1, 1, 1, 5),
]


def test_a_server_is_asked_while_a_training_goes_on(serve, clock, capsys):
    server, service = serve(GREETED)
    service.start()
    service.enqueue([(text,) for text in "abcd"], [4, 3, 2, 1], None, 0)
    for at, place, outcome, *expected in COURSE:
        clock[0] = at
        if place is not None:
            ends(server.futures[place], outcome)

        def found():
            figures = service.metrics()
            names = ("server_up", "in_flight", "queued", "failures")
            return ["".join(server.asked), *(figures[f"annotator/{name}"] for name in names)]

        with contextlib.suppress(AssertionError):
            wait_until(lambda found=found, expected=expected: found() == expected, "", 30, 0.002)
        time.sleep(0.015)  # in which nothing else may happen
        assert found() == expected
    assert service.poll() == [Label(("a",), YES, 0.75, 2.5, 11), Label(("b",), NO)]
    told = ["has no answers: is gone; training continues", "answers again, after 5 s"]
    assert capsys.readouterr().err.splitlines() == [f"the annotator {text}" for text in told]
    ends(server.futures[8], OSError("full"))
    for act in (service.poll, lambda: service.enqueue([], [], None, 0)):
        with pytest.raises(OSError, match="full"):
            wait_until(lambda act=act: act() and False, "it is told", 30, 0.002)


def test_a_start_waits_so_long_for_its_server(serve, clock, capsys):
    for first, quiet, requests in (
        ([GONE] * 4, 0, 4), ([GONE], 2.5, 1), ([ServerError("refuses", "")], 0, 1),
    ):  # fmt: skip
        server, service = serve(*first, quiet=quiet)
        with pytest.raises(UserError, match=first[0].cause):
            service.start()
        assert (len(server.asked), server.close.call_count) == (requests, 1)
    assert (clock[0], capsys.readouterr().err) == (52.5, f"the annotator waits: {GONE}\n")
    server, service = serve()
    with pytest.raises(StoppedError):
        service.start(lambda: server.asked == [""])
