"""Properties of questions over trainings that are drawn at random: labels, budgets, queues and
resumed trainings.
"""

from __future__ import annotations

import functools
import itertools
import json
import random

import pytest

from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import Prices
from motif_jax.motif.annotation.store import StoredAnswer
from motif_jax.oni import label_queue
from motif_jax.oni.config import Budget, Queue
from motif_jax.oni.label_queue import LabelBookkeeper
from tests.clocks import TickingClock


class DrawnTraining:
    """Meets drawn texts, sends what its bookkeeper takes, and gets drawn answers, some of which
    fail.
    """

    def __init__(
        self, form, order="frequent", size=1000, attempts=2, published=False, answers=None, **budget
    ):
        """`answers`: the labels that answers are drawn from, by default all of the form."""
        self.form = form
        self.answers = [*form.labels] if answers is None else answers
        self.draw = random.Random(3)
        self.step = 0
        queue = Queue(size=size, order=order, batch=3, budget=Budget(**budget))
        prices = Prices(2.0, 1.0, 8.0)
        self.make = functools.partial(
            LabelBookkeeper, queue, attempts, published, form, {"a": 1}, prices
        )
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
        label = self.verdicts.setdefault(pending.items, self.draw.choice(self.answers))
        if label != UNKNOWN:
            self.labelled.append(pending.items)
        self.book.answered(
            pending, StoredAnswer(label, None, pending.attempts + 1), (15, 3, 2), 0.5
        )

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
    """A clock of the books, of which each reading is a minute after the last: no failed question
    waits.
    """
    monkeypatch.setattr(label_queue, "time", TickingClock(itertools.count(0.0, 60.0)))


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
def test_a_question_without_verdict_is_sent_as_often_as_allowed():
    training = DrawnTraining(SINGLE, attempts=3, answers=[UNKNOWN])

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
        ((key, limit),) = budget.items()
        share = 2 * training.step / 1e6 if key.endswith("per_million_steps") else 1
        # The first question's tokens are not known before it is answered.
        assert training.total(name) <= max(limit * share, 18 if name == "tokens" else 0)
    assert training.total(name) >= 0.7 * limit * share


@pytest.mark.usefixtures("minutes")
def test_a_full_queue_counts_what_it_drops():
    training = DrawnTraining(PAIR, size=5, questions=0)
    training.play(100)
    assert training.book.queued() == 5
    assert training.total("dropped") > 10


@pytest.mark.usefixtures("minutes")
def test_a_resumed_training_asks_again_what_was_in_flight():
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
    poll = training.book.poll
    training.book.poll = list
    training.play(20)
    training.book.poll = poll
    state = training.book.state()
    untaken = training.book.poll()
    assert untaken
    resumed = training.make()
    resumed.restore(json.loads(json.dumps(state)))
    assert resumed.poll() == [
        label._replace(update_index=0, step=0, first_step=0) for label in untaken
    ]


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
