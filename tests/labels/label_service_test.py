"""Labels of an annotator that answers at once, and the bookkeeping of every label service."""

from __future__ import annotations

import json
import math

import pytest
from ml_collections import ConfigDict

from motif_jax import schema
from motif_jax.datasets.verdicts import FIRST, NO, PAIR, SECOND, SINGLE, TIE, UNKNOWN, YES
from motif_jax.labels import online
from motif_jax.labels.annotator import Annotator, Answer
from motif_jax.labels.label_queue import Label, LabelBookkeeper
from motif_jax.labels.label_service import LabelService
from motif_jax.labels.store import StoredAnswer
from motif_jax.schema import keys
from motif_jax.sections.agents import agent_config
from motif_jax.sections.annotators import OnlineAnnotator, Queue
from motif_jax.support.errors import UserError
from tests.end_to_end.annotate_datasets import conversations

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
    first = source.metrics()
    assert math.isnan(first["annotator/latency_mean"])
    told = ask(source, KILL, WALL, ("",))
    second = source.metrics()
    assert list(first) == list(second)
    assert 0 <= second["annotator/latency_mean"] <= second["annotator/latency_max"]
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
    assert len(Counting.asked) == 1
    assert told == {("k", "b"): (FIRST, pytest.approx(0.85)), ("b", "k"): (SECOND, pytest.approx(0.15))}
    ask(source, ("c", "d"))
    (turned,) = ask(source, ("d", "c"))
    assert (turned.items, turned.label, len(Counting.asked)) == (("d", "c"), TIE, 2)


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


def test_budgets_of_questions_and_tokens(make):
    def asking(step, **budget):
        """A service with twenty questions, and how many it asks at once."""
        ((unit, most),) = budget.items()
        source = make(**{f"queue__budget__{unit}": most})
        return source, len(ask(source, *[(f"{most} {n}",) for n in range(20)], step=step))

    assert asking(10**9, questions=7)[1] == 7
    source, asked = asking(500_000, questions_per_million_steps=4)
    assert (asked, len(ask(source, step=2_000_000))) == (2, 6)
    source, asked = asking(0, tokens=12 * 5)
    assert (asked, [len(source.poll()) for _ in range(3)]) == (1, [4, 0, 0])
    source, asked = asking(500_000, tokens_per_million_steps=24)
    assert (asked, len(source.poll())) == (1, 0)


def test_a_key_is_named_as_the_config_has_it_and_a_file_as_it_is_called():
    said = "config.goal=a: config.compat.b, config.annotator.seed, config.yaml, config.seeds and config.annotator=c"
    with pytest.raises(UserError) as caught, online.in_section():
        raise UserError(said)
    named = said.replace("config.goal", "config.annotator.goal").replace(".annotator=", ".annotator.kind=")
    assert str(caught.value) == named


def test_a_checkpoint_counts_no_step_twice_and_keeps_the_published_order(tmp_path):
    bookkeeper, again = (LabelBookkeeper(Queue(), 2, False, PAIR, {}, None) for _ in range(2))
    bookkeeper.enqueue([("k", "b"), ("b", "k")], [3, 2], [0.5, 0.5], 0)
    assert sum(count for _, count, _ in bookkeeper.state()["pending"]) == 5
    again.restore(json.loads(json.dumps(bookkeeper.state())))
    assert again.state() == bookkeeper.state()
    (asked,) = bookkeeper.take(2)
    bookkeeper.answered(asked, StoredAnswer(FIRST))
    assert bookkeeper.state()["pending"] == []
    bookkeeper, again = (LabelBookkeeper(Queue(batch=2), 2, True, SINGLE, {}, None) for _ in range(2))
    bookkeeper.enqueue([("a",), ("b",), ("c",), ("d",)], [1, 1, 1, 1], None, 0)
    asked = [one.items for one in bookkeeper.take(2)]
    again.restore(bookkeeper.state())
    assert asked == [one.items for one in again.take(2)] == [("d",), ("c",)]


@pytest.mark.parametrize("published", [False, True])
def test_answers_that_no_training_has_taken_are_in_a_checkpoint(tmp_path, published):
    bookkeeper, again = (LabelBookkeeper(Queue(batch=2), 2, published, PAIR, {}, None) for _ in range(2))
    bookkeeper.enqueue([("k", "b"), ("b", "k"), ("c", "d")], [1, 1, 1], None, 0)
    for place, asked in enumerate(bookkeeper.take(2)):
        bookkeeper.answered(asked, StoredAnswer((FIRST, SECOND)[place], (0.7, 0.2, 0.1)), (10, 3, 0), 2.5)
    again.restore(json.loads(json.dumps(bookkeeper.state())))
    assert again.metrics()["annotator/questions"] == 2
    told = again.poll()
    assert told == bookkeeper.poll()
    assert (len(told), told[0].seconds, told[0].tokens) == (2 if published else 3, 2.5, 13)
    assert again.poll() == []
    assert again.queued() == bookkeeper.queued() == published
    if not published:
        again.enqueue([one.items for one in told], [1] * 3, None, 1)
        assert again.queued() == 0, "what was told is not asked again"
