"""Labels of an annotator that answers at once, and the bookkeeping of every label service."""

from __future__ import annotations

import json
from concurrent.futures import Future
from operator import itemgetter
from unittest.mock import Mock

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.core.errors import UserError
from motif_jax.core.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.motif.annotation.annotator import (
    Annotator,
    Answer,
    Question,
    ServerError,
    make_annotator,
)
from motif_jax.oni import label_service
from motif_jax.oni.config import OnlineAnnotator, Queue
from motif_jax.oni.label_queue import Label
from motif_jax.oni.label_service import LabelService
from motif_jax.rl.config import agent_config
from motif_jax.schema import section_keys
from tests import made_up_judge
from tests.end_to_end.annotate_datasets import stored
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
    config = schema.section(
        {"annotator": section_keys(OnlineAnnotator), "queue": section_keys(Queue)}
    )
    config.compat = ConfigDict({"oni_requeue": False})
    config.annotator.store_dir = str(tmp_path / "store")
    config.update_from_flattened_dict(
        {name.replace("__", "."): value for name, value in values.items()}
    )
    return agent_config(config)


@pytest.fixture
def make(tmp_path):
    services = []

    def make(form=SINGLE, kind=f"{__name__}:Counting", **values):
        config = make_config(tmp_path, annotator__kind=kind, **values)
        label_service.check(config, form)
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


def test_a_run_without_a_store_writes_one_in_its_folder(tmp_path):
    config = make_config(tmp_path, annotator__store_dir="")
    label_service.check(config, SINGLE)
    source = LabelService(label_service.in_run(config, tmp_path / "run"), SINGLE)
    source.start()
    assert len(ask(source, KILL, WALL)) == 2
    source.close()
    answers = stored(tmp_path / "run" / label_service.STORE)
    assert {tuple(line["items"]): line["label"] for line in answers} == {KILL: YES, WALL: NO}
    assert config.annotator.store_dir == "", "what a user gave stays"


def test_equal_texts_are_a_tie_without_asking(make):
    source = make(PAIR)

    assert ask(source, ("a", "a")) == [Label(("a", "a"), TIE, 0.5)]
    assert ask(source, ("a", "a")) == []
    assert Counting.asked == []


def test_an_answer_that_contradicts_itself_is_no_label(make, monkeypatch):
    monkeypatch.setattr(
        Counting, "compare", staticmethod(lambda *_: Answer(FIRST, (0.2, 0.9, 0.1)))
    )
    source = make(PAIR)

    with pytest.raises(
        UserError, match=r"Counting gave .* must be probabilities of 0 or more whose sum is 1"
    ):
        ask(source, ("a", "b"))


def test_both_orders_of_two_texts_are_one_question(make):
    labels = {label.items: label for label in ask(make(PAIR), ("k", "b"), ("b", "k"))}

    assert len(Counting.asked) == 1
    assert labels[("k", "b")].label == FIRST
    assert labels[("k", "b")].probability == pytest.approx(0.85)
    assert labels[("b", "k")].label == SECOND
    assert labels[("b", "k")].probability == pytest.approx(0.15)


def test_questions_without_verdict_are_asked_a_limited_number_of_times(make):
    source = make(annotator__attempts=3)
    assert [ask(source, ("u",)) for _ in range(6)] == [[]] * 6
    assert Counting.asked == [("u",)] * 3
    counts = {"unknown": 3, "given_up": 1, "questions": 3, "answers": 0}
    assert {name: source.metrics()[f"annotator/{name}"] for name in counts} == counts
    assert (ask(make(annotator__attempts=3), ("u",)), Counting.asked) == ([], [])


def test_a_text_is_given_up_once_however_often_runs_resume(make):
    source = make(annotator__attempts=1)
    ask(source, ("u",))
    for _ in range(2):
        state = source.state()
        source = make(annotator__attempts=1)
        source.restore(state)
        ask(source, ("u",))

    assert source.metrics()["annotator/given_up"] == 1


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


@pytest.mark.parametrize(("budget", "calls"), [(3, [3, 0]), (9, [4, 4, 1, 0]), (None, [4, 4, 4])])
def test_published_calls_are_whole_until_the_budgets_last(make, budget, calls):
    values = {"queue__batch": 4, "queue__budget__questions": budget}
    source = make(compat__oni_requeue=True, **values)
    source.enqueue([("k",)], [20], None, 0)
    assert [len(source.poll()) for _ in calls] == calls


def test_published_calls_wait_for_a_whole_budget_by_steps(make):
    values = {"queue__batch": 4, "queue__budget__questions_per_million_steps": 10}
    source = make(compat__oni_requeue=True, **values)
    assert len(ask(source, *[("k",)] * 20, step=300_000)) == 0
    assert len(ask(source, ("k",), step=400_000)) == 4


@pytest.mark.slow
def test_server_faults_are_retried_and_a_full_disk_is_raised(make, monkeypatch, capsys):
    gone = ServerError("is gone", "no connection")
    first = Answer(YES, tokens=(1, 1, 0))
    second = Answer(YES, (0.25, 0.75), (9, 2, 0))
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
    monkeypatch.setattr(label_service, "WAKE_SECONDS", 0.005)
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


@pytest.mark.slow
def test_a_model_is_asked_in_both_orders(make, tmp_path) -> None:
    folder = made_up_judge.write(tmp_path / "judge")
    values = {"model__model": str(folder), "answer__minimum_mass": 0.0}
    service = make(PAIR, "model", **{f"annotator__{name}": value for name, value in values.items()})
    service.enqueue([KILL + WALL], [1], None, 0)
    (label,) = service.poll()
    config = annotation_config(
        {"annotator": "model"} | {k.replace("__", "."): v for k, v in values.items()}
    )
    annotator = make_annotator(config)
    annotator.start()
    orders = [Question("0" * 32, KILL + WALL), Question("0" * 32, WALL + KILL)]
    answers = sorted(filter(None, annotator.annotate(orders)), key=itemgetter(0))
    forward, reverse = (answer.probabilities for _, answer in answers)
    expected = (forward[FIRST] + forward[TIE] / 2 + reverse[SECOND] + reverse[TIE] / 2) / 2
    assert label.probability == pytest.approx(expected, abs=1e-5)


def test_answers_that_were_paid_for_cost_no_budget_again(make):
    """A run that is killed after its checkpoint has spent what it spent."""
    source = make(queue__budget__questions=3)
    state = source.state()
    labels = ask(source, ("k",), ("b",))
    assert {label.items for label in labels} == {("k",), ("b",)}

    resumed = make(queue__budget__questions=3)
    resumed.restore(state, labels)
    resumed.count_paid(labels)
    asked = ask(resumed, ("k",), ("c",), ("d",), ("e",))

    # One question is left, and those with a label are not asked.
    assert len(Counting.asked) == len(asked) == 1
    assert Counting.asked[0] in {("c",), ("d",), ("e",)}
    assert resumed.metrics()["annotator/questions"] == 3
    assert resumed.metrics()["annotator/tokens"] == 36


def test_both_orders_that_were_paid_for_are_one_question(make):
    source = make(PAIR)
    state = source.state()
    labels = ask(source, ("k", "b"), ("b", "k"), ("a", "a"))

    resumed = make(PAIR)
    resumed.restore(state, labels)
    resumed.count_paid(labels)

    assert resumed.metrics()["annotator/questions"] == 1
    assert (ask(resumed, ("b", "k"), ("k", "b")), Counting.asked) == ([], [])


def test_answers_that_wait_at_a_checkpoint_are_counted_once(make):
    """They are in its totals, and in the log behind it."""
    source = make()
    source.enqueue([("k",)], [1], None, 0)
    source.ask_now(1)
    state = json.loads(json.dumps(source.state()))
    labels = source.poll()
    assert [label.items for label in labels] == [("k",)]

    resumed = make()
    resumed.restore(state, labels)
    resumed.count_paid(labels)

    figures = resumed.metrics()
    assert (figures["annotator/questions"], figures["annotator/tokens"]) == (1, 12)
