"""Labels of an annotator that answers at once, and the bookkeeping of every label service."""

from __future__ import annotations

import functools
import itertools
import json
import random
from concurrent.futures import Future
from operator import itemgetter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import Annotator, Answer, Prices, Question, make_annotator
from motif_jax.motif.annotation.replies import ServerError
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.oni import label_config, label_queue, label_service
from motif_jax.oni.config import Budget, OnlineAnnotator, Queue
from motif_jax.oni.label_queue import Label, LabelBookkeeper
from motif_jax.oni.label_service import LabelService
from motif_jax.rl.config import agent_config
from motif_jax.schema import section_keys
from tests import made_up_judge
from tests.end_to_end.annotate_datasets import conversations
from tests.processes import wait_until
from tests.reward_fixtures import annotation_config

KILL = ("You kill the newt!",)
WALL = ("It's a wall.",)


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
        for position, question in enumerate(questions):
            self.asked.append(question.items)
            if any("u" in item for item in question.items):
                yield position, Answer(UNKNOWN, tokens=(10, 0, 0))
            elif self.form is SINGLE:
                yield position, Answer(int("k" in question.items[0]), tokens=(10, 2, 0))
            else:
                yield position, self.compare(*question.items)

    @staticmethod
    def compare(first, second):
        if "k" in first:
            return Answer(FIRST, (0.8, 0.1, 0.1))
        if "k" in second:
            return Answer(SECOND, (0.1, 0.8, 0.1))
        return Answer(TIE, (0.1, 0.1, 0.8))


def make_config(tmp_path, **values):
    config = schema.section({"annotator": section_keys(OnlineAnnotator), "queue": section_keys(Queue)})
    config.compat = ConfigDict({"oni_requeue": False})
    config.annotator.store_dir = str(tmp_path / "store")
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in values.items()})
    return agent_config(config)


@pytest.fixture
def make(tmp_path):
    services = []

    def make(form=SINGLE, kind=f"{__name__}:Counting", **values):
        config = make_config(tmp_path, annotator__kind=kind, **values)
        label_config.check(config, form)
        source = LabelService(config, form)
        source.start()
        services.append(source)
        return source

    yield make
    for source in services:
        source.close()


def ask(source, *items, step=0):
    source.enqueue(items, [1] * len(items), None, step)
    return source.poll()


def test_each_distinct_question_is_asked_once(make):
    source = make()

    for _ in range(3):
        ask(source, ("k1",), ("b",))

    assert Counting.asked == [("b",), ("k1",)]


def test_another_run_takes_answers_from_the_store_without_cost(make):
    ask(make(), ("k1",), ("b",))
    source = make()

    labels = {label.items: label for label in ask(source, ("k1",), ("c",))}

    assert Counting.asked == [("c",)]
    assert (labels[("k1",)].label, labels[("k1",)].tokens) == (YES, 0)
    assert (labels[("c",)].label, labels[("c",)].tokens) == (NO, 12)
    assert source.metrics()["annotator/from_store"] == 1


def test_a_run_without_a_store_has_its_own_and_keeps_conversations_on_request(tmp_path):
    config = make_config(tmp_path, annotator__store_dir="", annotator__keep_conversations=True)
    label_config.check(config, SINGLE)
    source = LabelService(label_config.in_run(config, tmp_path / "run"), SINGLE)
    source.start()
    assert len(ask(source, KILL, WALL)) == 2
    source.close()
    [path] = (tmp_path / "run" / label_config.CONVERSATIONS).iterdir()
    logged = {tuple(line["turns"][0]["content"]): line["label"] for line in conversations(path)}
    assert logged == {KILL: "yes", WALL: "no"}
    assert any((tmp_path / "run" / label_config.STORE).iterdir())
    assert config.annotator.store_dir == "", "what a user gave stays"


def test_equal_texts_are_a_tie_without_asking(make):
    source = make(PAIR)

    assert ask(source, ("a", "a")) == [Label(("a", "a"), TIE, 0.5)]
    assert ask(source, ("a", "a")) == []
    assert Counting.asked == []


def test_both_orders_of_two_texts_are_one_question(make):
    labels = {label.items: label for label in ask(make(PAIR), ("k", "b"), ("b", "k"))}

    assert len(Counting.asked) == 1
    assert labels[("k", "b")].label == FIRST
    assert labels[("k", "b")].probability == pytest.approx(0.85)
    assert labels[("b", "k")].label == SECOND
    assert labels[("b", "k")].probability == pytest.approx(0.15)


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
    labels = source.poll()
    assert len(labels) == len(Counting.asked) == (5 if published else 2)
    source = make(PAIR, compat__oni_requeue=published)
    ask(source, ("a", "a"))
    assert len(Counting.asked) == published


def test_a_key_is_named_as_the_config_has_it_and_a_file_as_it_is_called():
    message = "config.goal=a: config.compat.b, config.annotator.seed, config.yaml, config.seeds and config.annotator=c"

    with pytest.raises(UserError) as caught, label_config.in_section():
        raise UserError(message)

    expected = message.replace("config.goal", "config.annotator.goal")
    expected = expected.replace(".annotator=", ".annotator.kind=")
    assert str(caught.value) == expected


class DrawnTraining:
    """Meets drawn texts, sends what its bookkeeper takes, and gets drawn answers, some of which fail."""

    def __init__(self, form, order="frequent", size=1000, attempts=2, published=False, **budget):
        self.form = form
        self.draw = random.Random(3)
        self.step = 0
        queue = Queue(size=size, order=order, batch=3, budget=Budget(**budget))
        prices = Prices(2.0, 1.0, 8.0)
        self.make = functools.partial(LabelBookkeeper, queue, attempts, published, form, {"a": 1}, prices)
        self.book = self.make()
        self.in_flight = []
        self.labels = []
        # Each question that was sent, each that got an answer with a label, and the label of each.
        self.sent = []
        self.labelled = []
        self.verdicts = {}

    def play(self, steps):
        for _ in range(steps):
            self.step += 1
            drawn = (tuple(self.draw.choices("abcdefg", k=len(self.form.items))) for _ in range(3))
            items = list(dict.fromkeys(drawn))
            counts = [self.draw.randint(1, 3) for _ in items]
            self.book.enqueue(items, counts, [self.draw.random() for _ in items], 2 * self.step)
            taken = self.book.take(self.draw.randint(0, 3))
            self.sent += [pending.items for pending in taken]
            self.in_flight += taken
            for _ in range(min(2, len(self.in_flight))):
                self.answer(self.in_flight.pop(self.draw.randrange(len(self.in_flight))))
            self.labels += self.book.poll()

    def answer(self, pending):
        if self.draw.random() < 0.3:
            self.book.failed(pending)
            return
        # The same question has the same label, as from the store.
        label = self.verdicts.setdefault(pending.items, self.draw.choice([*self.form.labels]))
        if label != UNKNOWN:
            self.labelled.append(pending.items)
        self.book.answered(pending, StoredAnswer(label, None, pending.attempts + 1), (15, 3, 2), 0.5)

    def resume(self):
        """Goes on from a checkpoint, as a new process does; what was in flight is lost."""
        state = json.loads(json.dumps(self.book.state()))
        self.book = self.make()
        self.in_flight = []
        self.book.restore(state)

    def total(self, name):
        return self.book.metrics()[f"annotator/{name}"]


@pytest.fixture
def minutes(monkeypatch):
    """A clock of the books, of which each reading is a minute after the last: no failed question waits."""
    readings = itertools.count(0.0, 60.0)
    clock = SimpleNamespace(monotonic=lambda: next(readings), time=lambda: 0.0)
    monkeypatch.setattr(label_queue, "time", clock)


@pytest.mark.parametrize("order", ["frequent", "newest", "uncertain"])
@pytest.mark.usefixtures("minutes")
def test_a_question_with_a_label_is_not_asked_again(order):
    training = DrawnTraining(SINGLE, order)
    training.play(200)
    assert len(training.labelled) > 3
    assert len(set(training.labelled)) == len(training.labelled)


@pytest.mark.parametrize("form", [SINGLE, PAIR], ids=["single", "pair"])
@pytest.mark.usefixtures("minutes")
def test_each_text_gets_at_most_one_label(form):
    training = DrawnTraining(form)
    training.play(200)
    items = [label.items for label in training.labels]
    assert len(items) > 3
    assert len(set(items)) == len(items)


@pytest.mark.usefixtures("minutes")
def test_labels_of_two_texts_serve_both_orders():
    training = DrawnTraining(PAIR)
    training.play(400)
    labels = {label.items: label.label for label in training.labels}
    both = [items for items in labels if items[::-1] in labels and items[0] != items[1]]
    assert both
    for items in both:
        turned = {FIRST: SECOND, SECOND: FIRST, TIE: TIE}
        assert labels[items[::-1]] == turned[labels[items]]
    assert not {items[::-1] for items in training.sent} & set(training.sent)


@pytest.mark.usefixtures("minutes")
def test_a_question_without_a_verdict_is_sent_as_often_as_allowed():
    training = DrawnTraining(SINGLE, attempts=3)
    training.form = SimpleNamespace(items=SINGLE.items, labels=(UNKNOWN,))
    training.play(300)
    assert training.labels == []
    assert training.total("given_up") == 7, "one for each letter"
    assert training.total("unknown") == 3 * 7


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("questions", {"questions": 4}),
        ("tokens", {"tokens": 90}),
        ("questions", {"questions_per_million_steps": 50_000}),
        ("tokens", {"tokens_per_million_steps": 200_000}),
    ],
)
@pytest.mark.usefixtures("minutes")
def test_a_budget_is_used_and_never_exceeded(name, budget):
    training = DrawnTraining(PAIR, **budget)
    for _ in range(100):
        training.play(1)
        ((key, most),) = budget.items()
        share = 2 * training.step / 1e6 if key.endswith("per_million_steps") else 1
        # The first question's tokens are not known before it is answered.
        assert training.total(name) <= max(most * share, 18 if name == "tokens" else 0)
    assert training.total(name) >= 0.7 * most * share


@pytest.mark.usefixtures("minutes")
def test_a_full_queue_counts_what_it_drops():
    training = DrawnTraining(PAIR, size=5, questions=0)
    training.play(100)
    assert training.book.queued() == 5
    assert training.total("dropped") > 10


@pytest.mark.usefixtures("minutes")
def test_a_resumed_training_keeps_counts_and_asks_again_what_was_in_flight():
    training = DrawnTraining(SINGLE, size=5, questions=100)
    training.play(6)
    names = ("questions", "answers", "unknown", "failures", "dropped", "tokens", "cost")
    before = {name: training.total(name) for name in names}
    waiting = training.book.queued() + training.book.in_flight()
    training.resume()
    assert {name: training.total(name) for name in names} == before
    assert training.book.queued() == min(waiting, 5)
    assert training.book.in_flight() == 0


@pytest.mark.usefixtures("minutes")
def test_labels_of_two_texts_that_nobody_took_survive_a_resume():
    training = DrawnTraining(PAIR)
    training.play(30)
    poll, training.book.poll = training.book.poll, list
    training.play(20)
    training.book.poll = poll
    state = training.book.state()
    untaken = training.book.poll()
    assert untaken
    resumed = training.make()
    resumed.restore(json.loads(json.dumps(state)))
    assert resumed.poll() == [label._replace(number=0, step=0, met=0) for label in untaken]


@pytest.mark.usefixtures("minutes")
def test_a_published_queue_sends_whole_batches_one_after_the_other():
    training = DrawnTraining(SINGLE, published=True, size=1000)
    for step in range(50):
        training.book.enqueue([("a",), ("b",)], [2, 1], None, step)
        taken = training.book.take(1)
        assert len(taken) == 3
        assert training.book.take(1) == []
        for pending in taken:
            training.book.answered(pending, StoredAnswer(YES), (10, 2, 0))


@pytest.mark.usefixtures("minutes")
def test_metrics_count_tokens_costs_and_latencies():
    training = DrawnTraining(SINGLE)
    training.book.enqueue([("a",), ("b",)], [1, 1], None, 0)
    first, second = training.book.take(2)
    training.book.answered(first, StoredAnswer(YES), (100, 10, 40), 1.0)
    training.book.answered(second, StoredAnswer(NO), (50, 5, 0), 3.0)
    metrics = training.book.metrics()
    expected = {
        "questions": 2,
        "answers": 2,
        "tokens": 165,
        "latency_mean": 2.0,
        "latency_max": 3.0,
        # 110 of 150 tokens of prompts cost 2, 40 cost 1, and 15 of answers 8 for a million.
        "cost": (110 * 2 + 40 * 1 + 15 * 8) / 1e6,
    }
    assert {name: metrics[f"annotator/{name}"] for name in expected} == pytest.approx(expected)


@pytest.mark.usefixtures("minutes")
def test_metrics_have_the_same_names_from_the_first_row_on():
    training = DrawnTraining(SINGLE)
    before = training.book.metrics().keys()
    training.play(30)
    assert training.book.metrics().keys() == before


@pytest.mark.slow
def test_a_server_is_asked_again_beside_the_training_which_hears_of_a_full_disk(make, monkeypatch, capsys):
    gone = ServerError("is gone", "no connection")
    first, second = Answer(YES, tokens=(1, 1, 0)), Answer(YES, (0.25, 0.75), (9, 2, 0))
    outcomes = [gone, first, gone, second, OSError("full")]

    def submit(question):
        future = Future()
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    server = Mock(identity={}, prices=None, concurrency=1, submit=submit)
    server.quiet_seconds.return_value = 0
    monkeypatch.setattr(label_service, "make_annotator", lambda *_: server)
    monkeypatch.setattr(label_service, "_WAKE_SECONDS", 0.005)
    service = make(kind="openai", annotator__openai__model="m")
    labels = []
    service.enqueue([("a",)], [4], None, 0)
    wait_until(lambda: labels.extend(service.poll()) or labels, "a label", 60, 0.01)
    assert [label[:3] for label in labels] == [(("a",), YES, 0.75)]
    assert labels[0].tokens == 11
    counts = {"server_up": 1, "failures": 1, "questions": 2, "in_flight": 0}
    assert {name: service.metrics()[f"annotator/{name}"] for name in counts} == counts
    lines = f"waits: {gone}", "has no answers: is gone; training continues", "answers again, after"
    assert capsys.readouterr().err.startswith("\n".join(f"the annotator {line}" for line in lines))
    with pytest.raises(OSError, match="full"):
        wait_until(lambda: service.enqueue([("b",)], [1], None, 0), "it is told", 60, 0.01)


def test_a_model_is_asked_in_both_orders(make, tmp_path) -> None:
    folder = made_up_judge.write(tmp_path / "judge")
    values = {"model__model": str(folder), "answer__minimum_mass": 0.0}
    service = make(PAIR, "model", **{f"annotator__{name}": value for name, value in values.items()})
    service.enqueue([KILL + WALL], [1], None, 0)
    (label,) = service.poll()
    config = annotation_config({"annotator": "model"} | {k.replace("__", "."): v for k, v in values.items()})
    annotator = make_annotator(config)
    annotator.start()
    orders = [Question("0" * 32, KILL + WALL), Question("0" * 32, WALL + KILL)]
    answers = sorted(filter(None, annotator.annotate(orders)), key=itemgetter(0))
    forward, reverse = (answer.probabilities for _, answer in answers)
    expected = (forward[FIRST] + forward[TIE] / 2 + reverse[SECOND] + reverse[TIE] / 2) / 2
    assert label.probability == pytest.approx(expected, abs=1e-5)
